// Package ddp implements distributed data parallelism: each rank trains a copy of the model on its part of the batch (Li et al.
// 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training").
//
// A [Reducer] averages the gradients over the ranks. It works on tensors and events (a forward pass begins, a leaf's gradient is
// final, backward ends) and not on modules, so modules of any language can use it. [DistributedDataParallel] wraps modules of
// package nn.
//
// Gradients are all-reduced in buckets while backward runs. A bucket is launched once all its gradients are final and all earlier
// buckets are launched, so all ranks launch their collectives in the same order. Backward does not wait for the results: later
// users of a gradient, such as an optimiser's step, are ordered after the all-reduce by the device's streams. Sums are computed
// in rank order and divided once, so the bits depend only on the gradients.
//
// A backward pass succeeds on all ranks or fails on all ranks. It ends when every rank has launched its collectives. A rank whose
// pass fails, for example because memory runs out, fails the pass of the others with an error that names it. All ranks then drop
// their gradients, and the next forward pass starts the step again.
//
// The package also has [Join] for uneven numbers of batches, communication hooks that compress gradients
// ([Reducer.RegisterHook]), batch normalisation over the global batch ([SyncBatchNorm]), and asynchronous training
// ([Reducer.SetSyncMode]).
package ddp
