package core

// A BackwardContext is one run of a node's derivative: it holds the gradients of the outputs and collects those of the
// inputs. Tensors made while it runs are released when it ends, but those it was given to set.
type BackwardContext struct {
	Node *Node

	mode  Mode
	grads []*Tensor
	need  []bool
	out   []*Tensor
	err   error

	unpacked map[*ExternalValue]*Tensor
	returned func(e Edge) bool
	arrivals func(n *Node, i int) (g *Tensor, alone bool)
	arrived  []bool // for which inputs Arrived returned a gradient
	summed   []bool // for which of them it is in what was set
}

// NewBackwardContext prepares a run of n's derivative. grads are those of the outputs, nil where there is none; need says
// for which inputs gradients are wanted; nil means those with an edge. m is the mode the derivative runs in.
func NewBackwardContext(m Mode, n *Node, grads []*Tensor, need []bool) *BackwardContext {
	return &BackwardContext{Node: n, mode: m, grads: grads, need: need, out: make([]*Tensor, len(n.edges))}
}

// Grad returns the gradient of the only output.
func (ctx *BackwardContext) Grad() *Tensor { return ctx.grads[0] }

// GradAt returns the gradient of output i, or nil if nothing depends on it.
func (ctx *BackwardContext) GradAt(i int) *Tensor { return ctx.grads[i] }

// Needs reports whether the gradient of input i is wanted.
func (ctx *BackwardContext) Needs(i int) bool {
	if ctx.need != nil {
		return i < len(ctx.need) && ctx.need[i]
	}
	return i < len(ctx.Node.edges) && ctx.Node.edges[i].Node != nil
}

// Inner runs the derivative of the node's inner node on the given gradients, for the same inputs as d.
func (ctx *BackwardContext) Inner(grads []*Tensor) ([]*Tensor, error) {
	need := make([]bool, len(ctx.Node.edges))
	for i := range need {
		need[i] = ctx.Needs(i)
	}
	in := NewBackwardContext(ctx.mode, ctx.Node.inner, grads, need)
	in.unpacked = ctx.unpacked
	return in.Run()
}

// Set sets the gradient of input i. It must have the input's shape.
func (ctx *BackwardContext) Set(i int, g *Tensor) {
	if g != nil && g.failed() != nil && ctx.err == nil {
		ctx.err = g.failed()
	}
	ctx.out[i] = g
}

// Arrives makes fn say what has arrived for input i of n: see [BackwardContext.Arrived].
func (ctx *BackwardContext) Arrives(fn func(n *Node, i int) (g *Tensor, alone bool)) {
	ctx.arrivals = fn
}

// Arrived returns the gradient of input i that came from other derivatives, contiguous, which this one may add to its own and then set
// by [BackwardContext.SetSum]; nil if there is none or somebody wants to see the parts. It belongs to the backward pass. Where nobody else
// sees its memory, it is alone, and the derivative may overwrite it and set it.
func (ctx *BackwardContext) Arrived(i int) (g *Tensor, alone bool) {
	if ctx.arrivals == nil || !ctx.Needs(i) {
		return nil, false
	}
	if g, alone = ctx.arrivals(ctx.Node, i); g != nil {
		if ctx.arrived == nil {
			ctx.arrived = make([]bool, len(ctx.out))
		}
		ctx.arrived[i] = true
	}
	return g, alone
}

// SetSum sets the gradient of input i, in which what [BackwardContext.Arrived] returned is included.
func (ctx *BackwardContext) SetSum(i int, g *Tensor) {
	ctx.Set(i, g)
	if i < len(ctx.arrived) && ctx.arrived[i] {
		if ctx.summed == nil {
			ctx.summed = make([]bool, len(ctx.out))
		}
		ctx.summed[i] = true
	}
}

// Summed reports whether the gradient that was set for input i takes the place of the one that had arrived.
func (ctx *BackwardContext) Summed(i int) bool { return i < len(ctx.summed) && ctx.summed[i] }

// Fail makes the derivative fail.
func (ctx *BackwardContext) Fail(err error) {
	if ctx.err == nil {
		ctx.err = err
	}
}

// Failed reports whether the derivative has failed, so that what was saved must not be used.
func (ctx *BackwardContext) Failed() bool { return ctx.err != nil }

// Saved returns value i that the node saved; nil if nil was saved. A value that was freed or changed since is returned as
// a tensor that carries the error.
func (ctx *BackwardContext) Saved(i int) *Tensor {
	t, err := ctx.Node.unpack(i, ctx.mode, ctx.unpacked)
	if err != nil {
		ctx.Fail(err)
		return ErrorTensor(err)
	}
	return t
}

// Returns makes fn say along which edges the caller of the backward pass is given the gradients.
func (ctx *BackwardContext) Returns(fn func(e Edge) bool) { ctx.returned = fn }

// Hidden reports whether the gradient of input i of n, the context's node or one behind it, goes to the derivative behind it and to
// nobody else: no hook, no tensor that keeps it, no caller. It may then have strides that users do not expect.
func (ctx *BackwardContext) Hidden(n *Node, i int) bool {
	e := n.edges[i]
	if ctx.returned == nil || e.Node == nil || e.Node.leaf != nil || e.Node.External != 0 {
		return false
	}
	return !n.HasHooks() && !e.Node.HasHooks() && !ctx.returned(e)
}

// CreateGraph reports whether the derivative is itself recorded, and so must be made of differentiable operations.
func (ctx *BackwardContext) CreateGraph() bool { return ctx.mode.GradEnabled() }

// InputShape returns the shape of input i.
func (ctx *BackwardContext) InputShape(i int) []int { return ctx.Node.metas[i].shape }

// InputDType returns the dtype of input i.
func (ctx *BackwardContext) InputDType(i int) DType { return ctx.Node.metas[i].dtype }

// OutputShape returns the shape of output i.
func (ctx *BackwardContext) OutputShape(i int) []int {
	_, shape := ctx.Node.OutputMeta(i)
	return shape
}

// OutputDType returns the dtype of output i.
func (ctx *BackwardContext) OutputDType(i int) DType {
	dtype, _ := ctx.Node.OutputMeta(i)
	return dtype
}

// Run runs the node's derivative and returns the gradients of the inputs, nil where none is wanted.
func (ctx *BackwardContext) Run() ([]*Tensor, error) {
	ctx.Node.deriv(ctx)
	return ctx.Results()
}

// Results returns the gradients that were set, by input, and the error that kept them from being computed.
func (ctx *BackwardContext) Results() ([]*Tensor, error) { return ctx.out, ctx.err }
