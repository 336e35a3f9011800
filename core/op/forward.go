package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// A forward is what an op knows of the tangents of its inputs ([core.ForwardLevel]). The tangents of its results follow from the node that
// records it: the derivative of an op is linear in the gradients u of the results, so the derivative of <derivative(u), tangents> by u is
// the tangents of the results. An op on elements applies its derivative to the tangents, as it is its own transpose. A view needs nothing:
// its tangents are its base's.
type forward struct {
	name     string
	err      error
	recorded bool                 // the op is also recorded
	levels   []*core.ForwardLevel // at which an input has a tangent, the outermost first
	inputs   []*core.Tensor       // of the node
	changed  *core.Tensor         // in place, by an op that has not said yet what became of its tangents
}

// recorded reports whether gradients of the op are recorded.
func (op *opContext) recorded() bool {
	return op.grad && (op.forward == nil || op.forward.recorded)
}

// derived reports whether t takes part in derivatives: it requires a gradient or has a tangent.
func derived(t *core.Tensor) bool {
	return t.RequiresGrad() || t.HasTangent()
}

// seeTangents takes note of the tangents of an input.
func (op *opContext) seeTangents(t *core.Tensor) {
	for _, l := range t.TangentLevels(op.mode) {
		if op.forward == nil {
			op.forward = &forward{name: op.name, recorded: op.grad}
			op.grad = true
		}
		if f := op.forward; !slices.Contains(f.levels, l) {
			f.levels = append(f.levels, l)
			slices.SortFunc(f.levels, func(a, b *core.ForwardLevel) int { return a.Depth() - b.Depth() })
		}
	}
}

// Tangent returns the tangent of t at a level, which its base may share, or nil. See [core.ForwardLevel].
func Tangent(t *core.Tensor, l *core.ForwardLevel) *core.Tensor {
	v := t.BaseTangent(l)
	base, dtype, shape, strides, offset := t.Base()
	if v == nil || base == nil {
		return v
	}
	s := layoutIn(dtype, shape, strides, offset, t)
	return s.viewed(dtype, AsStrided(s.reals(s.flatten(v)), s.shape, s.strides, s.offset))
}

// SetTangent makes v the tangent of t at a level. Where t is a view, the tangent of its base changes there.
func SetTangent(t *core.Tensor, l *core.ForwardLevel, v *core.Tensor) error {
	out := core.RunScope(func() []*core.Tensor {
		core.SwapMode(core.CurrentMode().Below(l)) // until the scope ends
		base, dtype, shape, strides, offset := t.Base()
		if base == nil {
			return []*core.Tensor{v.Alias(true)}
		}
		old := t.BaseTangent(l)
		if old == nil {
			old = zerosFor(t, dtype, shape)
		}
		s := layoutIn(dtype, shape, strides, offset, t)
		flat := s.reals(s.flatten(old))
		return []*core.Tensor{s.gather(s.as(dtype, AsStridedScatter(flat, s.reals(v), s.shape, s.strides, s.offset)))}
	})[0]
	if out.Err() != nil {
		return out.Err()
	}
	t.SetBaseTangent(l, out)
	return nil
}

// push gives the outputs of n their tangents. A forward is no part of its opContext, which stays off the heap.
func (f *forward) push(n *core.Node, outs []*core.Tensor) error {
	for _, l := range f.levels {
		tangents := f.tangents(n, outs, l)
		for i, v := range tangents {
			if v == nil || f.err != nil {
				continue
			}
			if n.SavesOutput(i) {
				n.SetOutputTangent(i, l, v.Alias(true))
			}
			if base, _, _, _, _ := outs[i].Base(); base == nil {
				outs[i].SetBaseTangent(l, v)
				continue
			}
			f.err = SetTangent(outs[i], l, v) // of an op made of others, the last of which returned a view
			v.Release()
		}
	}
	return f.err
}

// pushInPlace gives t, which n's operation has changed in place, its tangents.
func (f *forward) pushInPlace(n *core.Node, t *core.Tensor) error {
	f.changed = nil
	for _, l := range f.levels {
		v := f.tangents(n, []*core.Tensor{t}, l)[0]
		if f.err != nil {
			break
		}
		if v == nil {
			f.forget(t, l)
			continue
		}
		if n.SavesOutput(0) {
			n.SetOutputTangent(0, l, v.Alias(true))
		}
		f.check(SetTangent(t, l, v))
		v.Release()
	}
	return f.err
}

// overwritten takes care of the tangents of a tensor that the op has changed to something that does not depend on its inputs.
func (f *forward) overwritten() error {
	t := f.changed
	f.changed = nil
	if t == nil || !t.DType().Differentiable() {
		return f.err
	}
	for _, l := range f.levels {
		f.forget(t, l)
	}
	return f.err
}

// forget makes the tangent of t, if there is one, zero.
func (f *forward) forget(t *core.Tensor, l *core.ForwardLevel) {
	if t.BaseTangent(l) == nil {
		return
	}
	zeros := zerosFor(t, t.DType(), t.Shape())
	if f.check(zeros.Err()); f.err == nil {
		f.check(SetTangent(t, l, zeros))
	}
	zeros.Release()
}

// check keeps the first error.
func (f *forward) check(err error) {
	if f.err == nil {
		f.err = err
	}
}

// differentiate returns the gradients of outputs with respect to inputs, nil where there is none, by nodes newer than the one of the given
// ID alone. Package autograd sets it.
var differentiate func(outputs, inputs, grads []*core.Tensor, record bool, since uint64) ([]*core.Tensor, error)

// SetDifferentiate sets the function that takes the derivatives of derivatives, for package autograd.
func SetDifferentiate(fn func(outputs, inputs, grads []*core.Tensor, record bool, since uint64) ([]*core.Tensor, error)) {
	differentiate = fn
}

// tangents returns the tangents at a level of the results of n's operation, nil for zeros.
func (f *forward) tangents(n *core.Node, outs []*core.Tensor, l *core.ForwardLevel) []*core.Tensor {
	if f.err != nil {
		return make([]*core.Tensor, len(outs))
	}
	return core.RunScope(func() []*core.Tensor {
		p := pushed{forward: f, node: n, outs: outs, mode: core.CurrentMode().Below(l).WithoutAutocast(), record: f.recorded}
		core.SwapMode(p.mode) // until the scope ends
		p.need, p.moves = make([]bool, len(f.inputs)), make([]*core.Tensor, len(f.inputs))
		some := false
		for i, x := range f.inputs {
			if x == nil || x.IsNumber() {
				continue
			}
			v := Tangent(x, l)
			if v == nil {
				continue
			}
			f.check(v.Err())
			p.need[i], p.moves[i], some = true, v, true
			p.record = p.record || p.tracked(v) || p.tracked(x)
		}
		results := make([]*core.Tensor, len(outs))
		if !some || f.err != nil {
			return results
		}
		p.record = p.record && p.mode.GradEnabled()
		if v, ok := n.Any.(*variant); ok && !isComplex(outs...) && !isComplex(f.inputs...) {
			results[0] = p.elementwise(v)
		} else {
			p.twice(results)
		}
		for i, r := range results {
			if r == nil {
				continue
			}
			if r = castTo(r, outs[i].DType()); !slices.Equal(r.Shape(), outs[i].Shape()) {
				r = Contiguous(Expand(r, outs[i].Shape()...))
			}
			for _, v := range p.moves {
				if r == v { // which belongs to the input
					r = r.Alias(true)
				}
			}
			if !p.record && p.tracked(r) { // by what the derivative recorded for itself
				core.NoGrad(func() { r = Dual(r, nil, nil) })
			}
			f.check(r.Err())
			results[i] = r
		}
		return results
	})
}

// pushed is the use of a node by which tangents are pushed forward.
type pushed struct {
	*forward
	node   *core.Node
	outs   []*core.Tensor
	mode   core.Mode
	record bool // the tangents of the results are recorded
	need   []bool
	moves  []*core.Tensor // the tangents of the inputs, nil for zeros
}

// tracked reports whether t, or one of its tangents, requires a gradient.
func (p *pushed) tracked(t *core.Tensor) bool {
	return t.RequiresGrad() || slices.ContainsFunc(t.TangentLevels(p.mode), func(l *core.ForwardLevel) bool { return p.tracked(Tangent(t, l)) })
}

// elementwise returns the tangent of the result of an operation on elements.
func (p *pushed) elementwise(v *variant) (sum *core.Tensor) {
	e, out := v.op, p.outs[0]
	ctx := core.NewBackwardContext(p.mode, p.node, []*core.Tensor{nil}, p.need)
	var slots [9]*core.Tensor
	values := slots[:len(e.kernel.In)+1]
	plain := !p.record
	for slot, i := range v.saves {
		if values[i] = ctx.Saved(slot); values[i].Err() != nil {
			return values[i]
		}
		plain = plain && len(values[i].TangentLevels(p.mode)) == 0
	}
	if v.again {
		values[len(values)-1] = out
	}
	for i, g := range e.grads {
		if g == nil || !p.need[i] {
			continue
		}
		w := castTo(p.moves[i], out.DType())
		if !slices.Equal(w.Shape(), out.Shape()) {
			w = Expand(w, out.Shape()...)
		}
		if w.Err() != nil {
			return w
		}
		r := w
		if _, isConst := g.program.Results[0].(*expr.Const); isConst {
			continue // only zero is linear in the gradient
		}
		switch {
		case g.kernel == nil:
		case plain && len(w.TangentLevels(p.mode)) == 0:
			r = e.fused(ctx, g, w, values, out.DType(), nil)
		default:
			r = e.interpretWith(ctx, g, w, values)
		}
		if sum == nil {
			sum = r
		} else {
			sum = Add(sum, r)
		}
	}
	return sum
}

// twice sets the tangents of the results by the derivative of the derivative.
func (p *pushed) twice(results []*core.Tensor) {
	since := core.LastNode()
	mode := p.mode.WithGrad(true)
	var gradients, products []*core.Tensor
	var at []int
	zeros, units := make([]*core.Tensor, len(p.outs)), []*core.Tensor(nil)
	core.WithMode(func(core.Mode) core.Mode { return mode.InScopeOf(core.CurrentMode()) }, func() {
		for i, out := range p.outs {
			if !out.DType().Differentiable() {
				continue
			}
			zeros[i] = zerosFor(out, out.DType(), out.Shape()).SetRequiresGrad(true)
			if p.check(zeros[i].Err()); p.err != nil {
				return
			}
			units, at = append(units, zeros[i]), append(at, i)
		}
		ctx := core.NewBackwardContext(core.CurrentMode(), p.node, zeros, p.need)
		grads, err := ctx.Run()
		if p.check(err); p.err != nil {
			return
		}
		for i, g := range grads {
			if g != nil && i < len(p.need) && p.need[i] && g.RequiresGrad() {
				gradients = append(gradients, g)
				products = append(products, castTo(p.moves[i], g.DType()))
			}
		}
	})
	if p.err != nil || len(gradients) == 0 {
		return
	}
	if differentiate == nil {
		p.check(core.Errorf(core.StateError, p.name, "tangents need package autograd"))
		return
	}
	found, err := differentiate(gradients, units, products, p.record, since)
	if err != nil {
		kind, _ := core.KindOf(err)
		p.err = core.Errorf(kind, p.name, "its derivative cannot be differentiated, as forward mode must: %w", err)
		return
	}
	for j, t := range found {
		results[at[j]] = t
	}
}

// Dual returns a tensor over t's elements and place in the graph with the tangent v at level l. Its tangents at the levels around l are t's.
// v may be nil: the result has none at l, or, where l is nil too, has t's at all levels. An error is returned where t has one already, or v
// is not like t.
func Dual(t, v *core.Tensor, l *core.ForwardLevel) *core.Tensor {
	if p := t.Parts(); p != nil && !p.Sparse() && !p.Recorded() {
		if v != nil {
			if p.Depth() == 0 && v.Parts() == nil && !core.CurrentMode().Replicates() {
				return core.ErrorTensor(core.Errorf(core.TypeError, "make_dual", "the tangent of a distributed tensor is a distributed tensor, got %v", v))
			}
			var err error
			if v, err = p.Take("make_dual", v); err != nil {
				return core.ErrorTensor(err)
			}
		}
		return p.With(Dual(p.Local(), v, l))
	}
	op := begin("make_dual", &t)
	if op.err == nil && v != nil {
		op.check(v.Usable(op.name))
	}
	if op.err != nil {
		return op.fail()
	}
	if v != nil {
		switch {
		case !t.DType().Differentiable():
			op.failf(core.DTypeError, "expected a floating-point or complex primal, got %v", t.DType())
		case v.DType() != t.DType():
			op.failf(core.DTypeError, "expected a tangent of the primal's dtype %v, got %v", t.DType(), v.DType())
		case !slices.Equal(v.Shape(), t.Shape()):
			op.failf(core.ShapeError, "expected a tangent of the primal's shape %v, got %v", t.Shape(), v.Shape())
		case v.Device() != t.Device():
			op.failf(core.DeviceError, "expected a tangent on the primal's device %v, got %v", t.Device(), v.Device())
		case t.BaseTangent(l) != nil:
			op.failf(core.StateError, "the primal already has a tangent at this level")
		}
	}
	if op.err != nil {
		return op.fail()
	}
	out := core.WrapTensor(op.mode, t.Storage(), t.DType(), t.Shape(), t.Strides(), t.Offset())
	levels := t.TangentLevels(op.mode)
	if l != nil {
		levels = t.TangentLevels(op.mode.Below(l))
	}
	if op.recorded() {
		op.forward = nil
		op.attach(op.node(sameDeriv, t), out)
	}
	for _, outer := range levels {
		w := Tangent(t, outer)
		if w.RequiresGrad() && !op.mode.GradEnabled() {
			w = Dual(w, nil, nil)
		}
		out.SetBaseTangent(outer, w.Alias(true))
	}
	if v != nil {
		out.SetBaseTangent(l, v.Alias(true))
	}
	return op.done(out)
}

// sameDeriv is the derivative of an operation that returns its input.
func sameDeriv(ctx *core.BackwardContext) { ctx.Set(0, ctx.Grad()) }
