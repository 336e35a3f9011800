package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// arrive adds g, which the run owns, to the gradients that have arrived along e.
func (r *Run) arrive(e core.Edge, g *core.Tensor) error {
	s := r.states[e.Node]
	old := s.grads[e.Index]
	if old == nil {
		s.grads[e.Index] = g
		return nil
	}
	if m := r.modeOf(e.Node); m != core.CurrentMode() {
		defer core.SwapMode(core.SwapMode(m))
	}
	sum, err := add(old, g, r.options.CreateGraph)
	if err != nil {
		return err
	}
	s.grads[e.Index] = sum
	return nil
}

// arrived returns what a derivative is told has arrived along edge i of n, which it may include in what it sets. It is nothing where the
// sum is to be recorded, or made on other streams than n's, where somebody looks at what n's derivative itself has made, and for an
// edge that n has another time before.
func (r *Run) arrived(n *core.Node, i int) (g *core.Tensor, mine bool) {
	e := n.Edges()[i]
	if g = r.states[e.Node].grads[e.Index]; g == nil || r.options.CreateGraph || r.mode.CheckGrads() || !g.Contiguous() {
		return nil, false
	}
	here := r.modeOf(n).Context()
	if !here.SameStreams(r.modeOf(e.Node).Context()) || g.Storage().Stream() != here.Stream(g.Device()) {
		return nil, false
	}
	if n.HasHooks() && n.PostHooks().Len() > 0 || slices.Index(n.Edges(), e) != i {
		return nil, false
	}
	if d, shape := n.InputMeta(i); d != g.DType() || !slices.Equal(shape, g.Shape()) {
		return nil, false
	}
	return g, alone(g)
}

// include puts g, which the run owns, in the place of what has arrived along e, which is a part of it.
func (r *Run) include(e core.Edge, g *core.Tensor) {
	s := r.states[e.Node]
	if old := s.grads[e.Index]; old != g {
		old.Release()
		s.grads[e.Index] = g
	}
}

// add returns a + b and takes both over, using the memory of one if nothing else does.
func add(a, b *core.Tensor, record bool) (*core.Tensor, error) {
	var sum *core.Tensor
	mine := func(t *core.Tensor) bool { return !record && alone(t) }
	if !mine(a) && mine(b) {
		a, b = b, a // the same sum
	}
	if mine(a) {
		core.NoGrad(func() { sum = op.AddInPlace(a, b) })
		b.Release()
		return sum, sum.Err()
	}
	core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(record) }, func() { sum = op.Add(a, b).Keep() })
	a.Release()
	b.Release()
	return sum, sum.Err()
}

// alone reports whether nobody else sees the memory of g, so that it may be overwritten.
func alone(g *core.Tensor) bool { return g.Storage().Refs() == 1 && g.Contiguous() }
