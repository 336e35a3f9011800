package core

// A Derivation is one run of a node's derivative: it holds the gradients of the outputs and collects those of the
// inputs. Tensors made while it runs are released when it ends, but those it was given to set.
type Derivation struct {
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

// NewDerivation prepares a run of n's derivative. grads are those of the outputs, nil where there is none; need says
// for which inputs gradients are wanted; nil means those with an edge. m is the mode the derivative runs in.
func NewDerivation(m Mode, n *Node, grads []*Tensor, need []bool) *Derivation {
	return &Derivation{Node: n, mode: m, grads: grads, need: need, out: make([]*Tensor, len(n.edges))}
}

// Grad returns the gradient of the only output.
func (d *Derivation) Grad() *Tensor { return d.grads[0] }

// GradAt returns the gradient of output i, or nil if nothing depends on it.
func (d *Derivation) GradAt(i int) *Tensor { return d.grads[i] }

// Needs reports whether the gradient of input i is wanted.
func (d *Derivation) Needs(i int) bool {
	if d.need != nil {
		return i < len(d.need) && d.need[i]
	}
	return i < len(d.Node.edges) && d.Node.edges[i].Node != nil
}

// Inner runs the derivative of the node's inner node on the given gradients, for the same inputs as d.
func (d *Derivation) Inner(grads []*Tensor) ([]*Tensor, error) {
	need := make([]bool, len(d.Node.edges))
	for i := range need {
		need[i] = d.Needs(i)
	}
	in := NewDerivation(d.mode, d.Node.inner, grads, need)
	in.unpacked = d.unpacked
	return in.Run()
}

// Set sets the gradient of input i. It must have the input's shape.
func (d *Derivation) Set(i int, g *Tensor) {
	if g != nil && g.failed() != nil && d.err == nil {
		d.err = g.failed()
	}
	d.out[i] = g
}

// Arrives makes fn say what has arrived for input i of n: see [Derivation.Arrived].
func (d *Derivation) Arrives(fn func(n *Node, i int) (g *Tensor, alone bool)) { d.arrivals = fn }

// Arrived returns the gradient of input i that came from other derivatives, contiguous, which this one may add to its own and then set
// by [Derivation.SetSum]; nil if there is none or somebody wants to see the parts. It belongs to the backward pass. Where nobody else
// sees its memory, it is alone, and the derivative may overwrite it and set it.
func (d *Derivation) Arrived(i int) (g *Tensor, alone bool) {
	if d.arrivals == nil || !d.Needs(i) {
		return nil, false
	}
	if g, alone = d.arrivals(d.Node, i); g != nil {
		if d.arrived == nil {
			d.arrived = make([]bool, len(d.out))
		}
		d.arrived[i] = true
	}
	return g, alone
}

// SetSum sets the gradient of input i, in which what [Derivation.Arrived] returned is included.
func (d *Derivation) SetSum(i int, g *Tensor) {
	d.Set(i, g)
	if i < len(d.arrived) && d.arrived[i] {
		if d.summed == nil {
			d.summed = make([]bool, len(d.out))
		}
		d.summed[i] = true
	}
}

// Summed reports whether the gradient that was set for input i takes the place of the one that had arrived.
func (d *Derivation) Summed(i int) bool { return i < len(d.summed) && d.summed[i] }

// Fail makes the derivation fail.
func (d *Derivation) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Failed reports whether the derivation has failed, so that what was saved must not be used.
func (d *Derivation) Failed() bool { return d.err != nil }

// Saved returns value i that the node saved; nil if nil was saved. A value that was freed or changed since is returned as
// a tensor that carries the error.
func (d *Derivation) Saved(i int) *Tensor {
	t, err := d.Node.unpack(i, d.mode, d.unpacked)
	if err != nil {
		d.Fail(err)
		return ErrorTensor(err)
	}
	return t
}

// Returns makes fn say along which edges the caller of the backward pass is given the gradients.
func (d *Derivation) Returns(fn func(e Edge) bool) { d.returned = fn }

// Hidden reports whether the gradient of input i of n, the derivation's node or one behind it, goes to the derivative behind it and to
// nobody else: no hook, no tensor that keeps it, no caller. It may then have strides that users do not expect.
func (d *Derivation) Hidden(n *Node, i int) bool {
	e := n.edges[i]
	if d.returned == nil || e.Node == nil || e.Node.leaf != nil || e.Node.External != 0 {
		return false
	}
	return !n.HasHooks() && !e.Node.HasHooks() && !d.returned(e)
}

// CreateGraph reports whether the derivative is itself recorded, and so must be made of differentiable operations.
func (d *Derivation) CreateGraph() bool { return d.mode.GradEnabled() }

// InputShape returns the shape of input i.
func (d *Derivation) InputShape(i int) []int { return d.Node.metas[i].shape }

// InputDType returns the dtype of input i.
func (d *Derivation) InputDType(i int) DType { return d.Node.metas[i].dtype }

// OutputShape returns the shape of output i.
func (d *Derivation) OutputShape(i int) []int {
	_, shape := d.Node.OutputMeta(i)
	return shape
}

// OutputDType returns the dtype of output i.
func (d *Derivation) OutputDType(i int) DType {
	dtype, _ := d.Node.OutputMeta(i)
	return dtype
}

// Run runs the node's derivative and returns the gradients of the inputs, nil where none is wanted.
func (d *Derivation) Run() ([]*Tensor, error) {
	d.Node.deriv(d)
	return d.Results()
}

// Results returns the gradients that were set, by input, and the error that kept them from being computed.
func (d *Derivation) Results() ([]*Tensor, error) { return d.out, d.err }
