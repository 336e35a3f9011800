// Package fsdp trains one model on many ranks, each of which keeps a part of every parameter, of its gradient and of the
// optimiser's state (Rajbhandari et al. 2020, "ZeRO"; Zhao et al. 2023, "PyTorch FSDP").
//
// A [Unit] is parameters that are gathered together: a layer of the model, or what no smaller unit has. It knows tensors and
// moments, such as "a forward pass begins", and no modules, so that the modules of every language can stand on it;
// [FullyShardedDataParallel] is the one for those of package nn.
//
// # What a parameter is
//
// Each parameter is divided by rows, its first dimension: rank r of n has the rows from r*c to (r+1)*c, c being the number
// of rows divided by n and rounded up. The last ranks may have fewer, or none; nothing is padded. [Unit.Layout] says who has
// what.
//
// There are two tensors for a parameter: the shard, a leaf with this rank's rows, and the full one, a leaf whose storage is
// empty but while the unit is gathered. The tensor that the module holds is the shard. While the unit computes, the two
// change places ([core.Tensor.Exchange]), under every name that the parameter has in the module; so optimisers, which look
// at it between steps, see shards, and the forward pass and what is computed again for a checkpoint see the whole. What
// the graph saves of a full parameter is its storage, which is refilled in place before backward needs it.
//
// # The life of a unit
//
//	forward:  gather, compute, free
//	backward: gather, compute, reduce the gradients to shards, free
//
// A gather is one collective for all parameters, from the shards' memory right into the storages of the full ones, and a
// reduction one from the full gradients right into the shards' gradients: nothing is packed. Both run on the group's
// communication stream. A collective waits for what was launched on its memory's stream before, so a gather that is to run
// beside a unit's computation is launched before that: each unit, as it begins, starts the gather of the next. The shards
// are an exception: what a rank gives waits only for what was launched until they last changed, so that it may be on its way
// to the others before there is room for what they give.
//
// At most [Options.Slots] units are gathered at once. The memory of a slot is the compute stream's: it goes back in program
// order, so who takes it next waits, by event, for the last consumer, and the peak does not depend on how far the host has
// run ahead or on which rank is slow. A prefetch that finds no free slot is put off until one is freed. Full gradients have
// two slots too: those of one unit are reduced while those of the next are computed, and their memory is not used again
// before.
//
// With u the parameters of the largest unit, P those of all and n ranks, the peak beside what the root unit and the
// activations take is P/n + 2u in forward and 2P/n + 4u in backward; without prefetching it is P/n + u and 2P/n + 2u.
//
// A pass in two parts, for the gradients of inputs and later for those of weights ([autograd.Options.First]), has the peak
// 2P/n + 2u in either: the first gathers, and the second makes full gradients. Where a derivative for a weight reads another weight,
// the second gathers that too, up to 2u more. Between the parts nothing is gathered.
//
// # The order of things
//
// All ranks must run the units in the same order, as they must call collectives. A unit's gradients are reduced when the
// last of those that this backward pass will bring has come; a parameter that got none counts as zeros, and keeps no
// gradient if no rank has one. Sums are in the order of the ranks and divided once: the bits are those of package ddp.
//
// Backward ends when all ranks have come to its end. If a pass fails on one, the step fails on all, and the next can begin: see
// failure.go.
package fsdp
