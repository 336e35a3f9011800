// Package autograd computes gradients over the graph that operations record.
//
// [Backward] adds the gradients of some outputs to the leaves they depend on; [Grad] returns them. Both walk the graph
// from the newest node to the oldest, so each node runs once, when the gradients of all its outputs are known, and a
// leaf's gradient is final as early as it can be. A walk ([Run]) can be resumed: where a node or a hook belongs to another
// language, it hands the gradients to its caller and goes on with what the caller returns.
package autograd

//go:generate go run github.com/plait-ml/plait/internal/gen/exported
