// Package autograd computes gradients over the graph that operations record.
//
// [Backward] adds the gradients of outputs to the leaves that they depend on; [Grad] returns gradients instead. Both run the nodes of the
// graph in reverse order. A node runs once, when the gradients of all its outputs have arrived, so a leaf's gradient is final as early as
// possible. A pass ([Run]) can be suspended: if a node or a hook belongs to another language, the run returns a [Request] to its caller and
// continues with the answer.
package autograd

//go:generate go run github.com/plait-ml/plait/internal/gen/exported
