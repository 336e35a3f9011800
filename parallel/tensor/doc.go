// Package tensor distributes tensors over a mesh of ranks.
//
// A distributed tensor is an ordinary [core.Tensor] to its users: it has a shape, a dtype, a gradient, and ops take it. Each rank of the
// mesh holds a part of it. For each dimension of the mesh a placement says which: [core.Shard], [core.InterleavedShard], [core.Replicate] or
// [core.Partial].
//
// An op on distributed tensors lays its inputs so that it can work on the parts ([Redistribute]), runs on the parts as it would on any
// tensors, and says how its results lie. What it may do without communication is said by the op's rule ([op.Rule]); of several ways it
// takes the one that moves the fewest bytes. An op without a rule gathers its inputs.
//
// The gradient of a sharded part is the part of the gradient, and that of a replicated or a pending part is the whole gradient. So
// derivatives are those of the ops on the parts, and of the moves between placements.
//
// All ranks of a mesh must call the same functions in the same order.
package tensor
