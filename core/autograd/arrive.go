package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// addGrad adds g, which the run owns, to the gradients that have arrived along e.
func (r *Run) addGrad(e core.Edge, g *core.Tensor) error {
	s := r.states[e.Node]
	old := s.grads[e.Index]
	if old == nil {
		s.grads[e.Index] = g
		return nil
	}
	if m := r.modeOf(e.Node); m != core.CurrentMode() {
		defer core.SwapMode(core.SwapMode(m))
	}
	if d, _ := e.Node.OutputMeta(e.Index); d == core.Float32 && old.DType().IsHalf() && g.DType().IsHalf() {
		wide := op.To(old, d).Keep() // gradients are added in the dtype of their tensor
		old.Release()
		old = wide
	}
	sum, err := add(old, g, r.options.CreateGraph)
	if err != nil {
		return err
	}
	s.grads[e.Index] = sum
	return nil
}

// arrived returns the gradient that has arrived so far along edge i of n. n's derivative may add it to its own result, which saves a
// separate addition. It is nil if the sum must be recorded or computed on other streams than n's, if a hook or the NaN check looks at the
// derivative's own result, or if an earlier edge of n leads to the same place.
func (r *Run) arrived(n *core.Node, i int) (g *core.Tensor, mine bool) {
	e := n.Edges()[i]
	if g = r.states[e.Node].grads[e.Index]; g == nil || r.options.CreateGraph || r.mode.CheckGrads() || g.Parts() != nil || !g.Contiguous() {
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
	return g, exclusive(g)
}

// replaceSum replaces the gradient that has arrived along e by g, a sum that includes it. The run owns g.
func (r *Run) replaceSum(e core.Edge, g *core.Tensor) {
	s := r.states[e.Node]
	if old := s.grads[e.Index]; old != g {
		old.Release()
		s.grads[e.Index] = g
	}
}

// add returns a + b and takes over both. It reuses the memory of one of them if nothing else refers to it, and it can hold the sum: that of a tensor
// that stands for all parts of a batch alike cannot.
func add(a, b *core.Tensor, record bool) (*core.Tensor, error) {
	var sum *core.Tensor
	reusable := func(t *core.Tensor) bool { return !record && exclusive(t) }
	switch {
	case a.DType() != b.DType(): // the sum has the wider dtype
		if a.DType() != core.Promote(a.DType(), b.DType()) {
			a, b = b, a
		}
	case !reusable(a) && reusable(b):
		a, b = b, a // addition is commutative
	}
	if reusable(a) && b.Parts() == nil && a.DType() == core.Promote(a.DType(), b.DType()) {
		core.NoGrad(func() { sum = op.AddInPlace(a, b) })
		b.Release()
		return sum, sum.Err()
	}
	core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(record) }, func() { sum = op.Add(a, b).Keep() })
	a.Release()
	b.Release()
	return sum, sum.Err()
}

// exclusive reports whether g has the only reference to its memory, so that it may be overwritten.
func exclusive(g *core.Tensor) bool {
	return g.Parts() == nil && g.Storage().Refs() == 1 && g.Contiguous()
}
