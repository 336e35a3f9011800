package pooling

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/reduction"
	"github.com/plait-ml/plait/gpu/shader"
)

// averageCall: Outs[0] = the averages of the windows of Ins[0].
func averageCall(r *shader.Recorder, c *core.Call) error {
	x, out := &c.Ins[0], &c.Outs[0]
	p := newPool(contract.PoolOf(c), x.Shape, out.Shape)
	if p.single() && x.Numel() > 0 {
		f, _ := reduction.Of("mean", true, 0)
		return f.Run(r, "mean", shader.F32Like(x, p.planes, primitive.Product3(p.In)), []*core.Operand{shader.F32Like(out, p.planes)}, []int64{1}, 0)
	}
	window := p.mostElements()
	s := shader.New(r, "avg_pool")
	from, to := s.In("x", x, expr.F32, expr.Number), s.Out("y", out, expr.F32, expr.Number)
	n, plane, divisor := s.Uint(out.Numel()), s.Uint(primitive.Product3(p.In)), s.Uint(p.divisor)
	s.Flag(p.adaptive)
	s.Flag(p.includePad)
	s.Flag(p.divisor != 0)
	wide := s.Flag(window >= wideWindow)
	width := s.Specialize(primitive.RowThreads(window))
	g := p.BindConstants(s)
	if out.Numel() == 0 {
		return nil
	}
	if !wide {
		return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
			w.Each(n)
			w.Put(primitive.UnfoldPlane("o", "i", g.Out))
			w.Put(p.windowRange(g, divisor))
			w.Add("  var sum = 0.0;")
			w.Put(windowLoop(g, fmt.Sprintf("    sum = sum + ld_x(%s + plane * %s + at);\n", from, plane)))
			w.Add("  st_y(%s + i, sum / real(size));", to)
		})
	}
	return s.Run(r, out.Numel(), func(w *shader.Text) {
		w.Sum(width)
		w.EachGroup(width, n)
		w.Put(primitive.UnfoldPlane("o", "group", g.Out))
		w.Put(p.windowRange(g, divisor))
		w.Add("  var sum = 0.0;")
		w.Put(wideLoop(g, width, fmt.Sprintf("    sum = sum + ld_x(%s + plane * %s + at);\n", from, plane)))
		w.Add(`  sum = whole_sum(li, sum);
  if (li == 0u) { st_y(%s + group, sum / real(size)); }`, to)
	})
}

// single reports whether there is one window, the whole plane.
func (p *pool) single() bool { return p.adaptive && primitive.Product3(p.Out) == 1 }

// averageGradCall: Outs[0] = the gradient of the input of averageCall, for the gradient Ins[0] of its result.
func averageGradCall(r *shader.Recorder, c *core.Call) error {
	grad, out := &c.Ins[0], &c.Outs[0]
	p := newPool(contract.PoolOf(c), out.Shape, grad.Shape)
	if p.single() {
		return p.spread(r, grad, out)
	}
	s := shader.New(r, "avg_pool_grad")
	from, to := s.In("x", grad, expr.F32, expr.Number), s.Out("y", out, expr.F32, expr.Number)
	n, places, divisor := s.Uint(out.Numel()), s.Uint(primitive.Product3(p.Out)), s.Uint(p.divisor)
	s.Flag(p.adaptive)
	s.Flag(p.includePad)
	s.Flag(p.divisor != 0)
	g := p.BindConstants(s)
	if out.Numel() == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Put(primitive.UnfoldPlane("e", "i", g.In))
		w.Add("  var sum = 0.0;")
		w.Put(p.outputLoop(g, fmt.Sprintf("%s    sum = sum + ld_x(%s + plane * %s + (o_0 * %s + o_1) * %s + o_2) / real(size);\n", p.windowRange(g, divisor), from, places, g.Out[1], g.Out[2])))
		w.Add("  st_y(%s + i, sum);", to)
	})
}

// spread sets each element of a plane of y to the plane's number in x, divided by the number of its elements.
func (p *pool) spread(r *shader.Recorder, x, y *core.Operand) error {
	size := primitive.Product3(p.In)
	s := shader.New(r, "avg_pool_grad of one window")
	from, to := s.In("x", x, expr.F32, expr.Number), s.Out("y", y, expr.F32, expr.Number)
	wide := 1
	if s.Flag(size%4 == 0 && s.Aligned(y)) {
		wide, s.Bindings[1].Vec4 = 4, true
	}
	units := y.Numel() / wide
	n, per, divisor := s.Uint(units), s.Uint(size/wide), s.Uint(size)
	if units == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(units), func(w *shader.Text) {
		w.Each(n)
		w.Add("  let v = ld_x(%s + i / %s) / real(%s);", from, per, divisor)
		if wide == 4 {
			w.Add("  y[(%s >> 2u) + i] = real4(v, v, v, v);", to)
			return
		}
		w.Add("  st_y(%s + i, v);", to)
	})
}
