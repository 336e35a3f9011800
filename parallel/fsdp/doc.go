// Package fsdp trains one model on many ranks with fully sharded data parallelism: each rank keeps a shard of every parameter, of its
// gradient and of the optimiser's state (Rajbhandari et al. 2020, "ZeRO"; Zhao et al. 2023, "PyTorch FSDP").
//
// A [Unit] is a list of parameters that are all-gathered together, usually those of one layer. Its methods mark the start and end of
// passes. It does not know modules, so that modules of every language can use it. [FullyShardedDataParallel] does so for package nn.
//
// # What a parameter is
//
// Each parameter is sharded along its first dimension, or the one that [Options.ShardDim] says: rank r of n has rows r*c to (r+1)*c, where c
// is the number of rows divided by n, rounded up. The last ranks may have fewer rows or none. Nothing is padded. Of a parameter without
// dimensions every rank has a copy.
//
// A parameter has two tensors, both leaves: the shard, and the full parameter, whose storage is empty unless the unit is unsharded. The shard
// is a distributed tensor (package tensor) on the ranks of the unit ([Options.Mesh]), and so are its gradient and the optimiser's states:
// operations, norms and checkpoints see the whole. The full parameter is an ordinary tensor. A parameter may be a distributed tensor
// already, as with tensor parallelism. Its rows are then those of this rank's part of it, its shard is on the mesh of both dimensions, those of the
// unit first, and interleaved if it is divided along the same dimension before. Its full parameter is distributed as before.
//
// On the only rank of a group the shard and the full parameter share memory, and an all-gather does nothing.
//
// The module holds the shard. While the unit computes, the contents of the two are exchanged ([core.Tensor.Exchange]), under
// every name that the parameter has in the module. Optimisers, which run between passes, see shards. The forward pass and recomputation
// for activation checkpoints see full parameters. The autograd graph saves the full parameter's storage, and the all-gather in backward
// refills that storage in place.
//
// # The life of a unit
//
//	forward:  all-gather, compute, reshard
//	backward: all-gather, compute, reduce-scatter the gradients, reshard
//
// One all-gather reads all shards of a unit and writes the storages of its full parameters. One reduce-scatter reads the full gradients and
// writes the shards' gradients. Neither packs tensors into a flat parameter. Both run on the group's communication stream. A collective waits
// for earlier calls on the stream that its memory belongs to. Each unit therefore starts the all-gather of the next unit before its own
// computation, so that the two overlap. Inputs of all-gathers wait only for calls up to the last change of the shards.
//
// At most [Options.Slots] units are unsharded at a time. Their memory belongs to the compute stream and is freed in program order. The next
// all-gather into it waits for an event after its last use, so the peak does not depend on how far the host runs ahead or which rank is
// slow. A prefetch without a free slot is deferred until a unit is resharded. Full gradients have two slots too: one unit's gradients are
// reduced while the next unit's are computed.
//
// Let u be the size of the largest unit's parameters, P the size of all parameters and n the world size. Without the root unit and
// activations, the peak is P/n + 2u in forward and 2P/n + 4u in backward; without prefetching it is P/n + u and 2P/n + 2u.
//
// A backward pass may compute the gradients of inputs first and those of weights later ([autograd.Options.First]). The peak of either part
// is 2P/n + 2u: the first part all-gathers, and the second creates full gradients. If the gradient of a weight needs another weight, the second
// part all-gathers that too, up to 2u more. Between the parts all units are sharded.
//
// # The order of collectives
//
// All ranks must run the units in the same order, because each unit's passes start collectives. A unit's reduce-scatter starts when the last of
// its gradients in this backward pass is known. A parameter without a gradient counts as zeros; if no rank has a gradient for it, it keeps
// none. Sums run in the order of the ranks and are divided once, so that the result equals package ddp's bit for bit.
//
// Backward returns when all ranks have reached its end. If a pass fails on one rank, the step fails on all ranks, and the next step can
// begin: see failure.go.
package fsdp
