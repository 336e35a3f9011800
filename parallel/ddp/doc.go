// Package ddp trains one model on many ranks, each with a copy of it and a part of the batch (Li et al. 2020, "PyTorch
// Distributed: Experiences on Accelerating Data Parallel Training").
//
// A [Reducer] makes the gradients of the ranks' copies equal to their average. It knows tensors, names and moments: a
// forward pass begins, the gradient of a leaf is final, backward ends. It does not know modules, so that the modules of
// every language can stand on it; [DistributedDataParallel] is the one for those of package nn.
//
// Gradients are reduced in buckets while backward goes on. A bucket goes to the group once the gradients in it are final
// and the buckets before it have gone, so that all ranks make the same calls in the same order. Nothing waits for the
// result: what uses a gradient later, such as an optimiser's step, is ordered after it on the device's streams. Sums are
// in the order of the ranks, and averaging divides once, so that the bits depend on nothing but the gradients.
//
// A backward pass counts on all ranks or on none: it ends when every rank has called the collectives of its own. A rank whose pass
// fails, such as for lack of memory, ends that of the others with an error that names it. All drop their gradients, and the next forward
// pass begins the step anew.
//
// Besides there are [Join] for ranks with unequal numbers of batches, hooks that compress what is sent
// ([Reducer.RegisterHook]), batch normalisation over the joined batch ([SyncBatchNorm]), and training without waiting for
// every rank in every step ([Reducer.SetSyncMode]).
package ddp
