package core

// A BackwardContext is one run of a node's derivative. It holds the gradients of the outputs and collects the gradients of the inputs.
// Tensors made during the run are released at its end, except those passed to Set.
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
	arrived  []bool // inputs for which Arrived returned a gradient
	summed   []bool // inputs whose set gradient includes the one that Arrived returned
	mixed    []bool // inputs whose gradient may have another floating-point dtype than they
}

// NewBackwardContext prepares a run of n's derivative in mode m. grads are the gradients of the outputs, nil where there is none. need says
// which inputs want a gradient; nil means every input with an edge.
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

// Inner runs the derivative of the node's inner node on grads, for the inputs that ctx needs.
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

// Arrives sets the function that [BackwardContext.Arrived] asks for the gradient accumulated so far for input i of n.
func (ctx *BackwardContext) Arrives(fn func(n *Node, i int) (g *Tensor, alone bool)) {
	ctx.arrivals = fn
}

// Arrived returns the gradient that other derivatives have already accumulated for input i, contiguous. This derivative may add it to its
// own gradient and pass the sum to [BackwardContext.SetSum]. It is nil if there is none, or if a hook needs to see the parts. The tensor
// belongs to the backward pass. If alone, nothing else uses its memory: the derivative may overwrite it and set it.
func (ctx *BackwardContext) Arrived(i int) (g *Tensor, alone bool) {
	if ctx.arrivals == nil || !ctx.Needs(i) || ForwardActive() {
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

// SetSum sets the gradient of input i to a sum that includes what [BackwardContext.Arrived] returned.
func (ctx *BackwardContext) SetSum(i int, g *Tensor) {
	ctx.Set(i, g)
	if i < len(ctx.arrived) && ctx.arrived[i] {
		if ctx.summed == nil {
			ctx.summed = make([]bool, len(ctx.out))
		}
		ctx.summed[i] = true
	}
}

// Summed reports whether the gradient set for input i replaces the one that had arrived.
func (ctx *BackwardContext) Summed(i int) bool { return i < len(ctx.summed) && ctx.summed[i] }

// SetMixed sets the gradient of input i, which may have another floating-point dtype than the input, because the derivative behind it
// takes any. Nothing else may see it: see [BackwardContext.Hidden].
func (ctx *BackwardContext) SetMixed(i int, g *Tensor) {
	ctx.Set(i, g)
	if ctx.mixed == nil {
		ctx.mixed = make([]bool, len(ctx.out))
	}
	ctx.mixed[i] = true
}

// Mixed reports whether the gradient of input i was set by [BackwardContext.SetMixed].
func (ctx *BackwardContext) Mixed(i int) bool { return i < len(ctx.mixed) && ctx.mixed[i] }

// Fail makes the derivative fail.
func (ctx *BackwardContext) Fail(err error) {
	if ctx.err == nil {
		ctx.err = err
	}
}

// Failed reports whether the derivative has failed, so that what was saved must not be used.
func (ctx *BackwardContext) Failed() bool { return ctx.err != nil }

// Saved returns saved value i; nil if nil was saved. If the value was freed, or changed since, it returns a tensor that carries the error.
func (ctx *BackwardContext) Saved(i int) *Tensor {
	t, err := ctx.Node.unpack(i, ctx.mode, ctx.unpacked)
	if err != nil {
		ctx.Fail(err)
		return ErrorTensor(err)
	}
	return t
}

// Returns sets the function that says along which edges the gradient is returned to the caller of the backward pass.
func (ctx *BackwardContext) Returns(fn func(e Edge) bool) { ctx.returned = fn }

// Hidden reports whether only the next derivative sees the gradient of input i: no hook that is not blind, no tensor that retains it, and not
// the caller. Such a gradient may have unusual strides. n is the context's node or a node behind it.
func (ctx *BackwardContext) Hidden(n *Node, i int) bool {
	e := n.edges[i]
	if ctx.returned == nil || e.Node == nil || e.Node.leaf != nil || e.Node.External != 0 {
		return false
	}
	return !n.shows() && !e.Node.shows() && !ctx.returned(e)
}

// CreateGraph reports whether the derivative itself is recorded, or tangents are taken through it, so that it must consist of differentiable
// operations.
func (ctx *BackwardContext) CreateGraph() bool { return ctx.mode.GradEnabled() || ForwardActive() }

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

// Results returns the gradients set so far, by input, and the derivative's error.
func (ctx *BackwardContext) Results() ([]*Tensor, error) { return ctx.out, ctx.err }
