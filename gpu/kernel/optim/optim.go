// Package optim has the GPU kernels of optimiser steps. One dispatch updates as many parameters as its parameter list has room for.
package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/reduction"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.OptimNorm, normCall)
	kernel.Register(contract.OptimClip, func(r *shader.Recorder, c *core.Call) error { return scaleCall(r, c, true) })
	kernel.Register(contract.OptimClamp, clampCall)
	kernel.Register(contract.OptimUnscale, unscaleCall)
}

// flatten returns a contiguous operand with one dimension.
func flatten(o *core.Operand) core.Operand {
	f := *o
	f.Shape, f.Strides = []int{o.Numel()}, []int{1}
	return f
}

func normCall(r *shader.Recorder, c *core.Call) error {
	a := contract.OptimNormOf(c)
	p := a.P
	name := "norm"
	switch {
	case p == 2:
		name = "sum_of_squares"
	case p == 1:
		name = "norm1"
	case p == 0:
		name = "norm0"
	case math.IsInf(p, 1):
		name = "normmax"
	case math.IsInf(p, -1):
		name = "normmin"
	}
	f, _ := reduction.Of(name, true, p)
	if name == "norm" {
		f.Result = []string{"a.f0"}
	}
	parts, err := r.Reals(max(len(c.Ins), 1))
	if err != nil {
		return err
	}
	for i := range c.Ins {
		in := flatten(&c.Ins[i])
		part := core.Operand{Memory: parts, Offset: i, DType: r.RealType()}
		if err := f.Run(r, "optim_"+name, &in, []*core.Operand{&part}, []int64{0}, p); err != nil {
			return err
		}
	}
	join, finish := "a + v", "a"
	start := "0.0"
	switch {
	case math.IsInf(p, 1):
		join = "select(a, v, v > a || plait_isnan_f32(v))"
	case math.IsInf(p, -1):
		join, start = "select(a, v, v < a || plait_isnan_f32(v))", shader.Infinity
	case a.Root && p == 2:
		finish = "sqrt(a)"
	case a.Root && p != 0:
		finish = "plait_pow_f32(a, 1.0 / power)"
	}
	s := shader.New(r, "optim_norm "+join+finish)
	from, to, n, power := s.RealsOf("parts", parts), s.Out("y", &c.Outs[0], expr.F32, expr.Number), s.Uint(len(c.Ins)), s.Float(p)
	return s.Run(r, 1, func(w *shader.Text) {
		w.Main(1)
		w.Add(`  let power = %s;
  var a = %s;
  for (var j = 0u; j < %s; j++) { let v = parts[%s + j]; a = %s; }`, power, start, n, from, join)
		w.Add("  st_y(%s, %s);", to, finish)
	})
}

// scaleCall multiplies all Outs by the number Ins[0]; with clip, by the factor that reduces the norm Ins[0] to the limit.
func scaleCall(r *shader.Recorder, c *core.Call, clip bool) error {
	limit := 0.0
	if clip {
		limit = contract.OptimFactor(c)
	}
	for i := range c.Outs {
		o := &c.Outs[i]
		s := shader.New(r, "optim_scale")
		y, n, most := s.InOut("y", o, expr.F32), s.Uint(o.Numel()), s.Float(limit)
		factor := ""
		if s.Flag(c.Ins[0].IsNumber) {
			factor = s.Float(c.Ins[0].Number.Float)
		} else {
			factor = "ld_factor(" + s.In("factor", &c.Ins[0], expr.F32, expr.Number) + ")"
		}
		s.Flag(clip)
		if o.Numel() == 0 {
			continue
		}
		err := s.Run(r, shader.GroupsFor(o.Numel()), func(w *shader.Text) {
			if clip {
				w.Each(n)
				w.Add(`  let factor = %s / (%s + 1e-6);
  if (factor < 1.0 || plait_isnan_f32(factor)) { st_y(%s + i, ld_y(%s + i) * factor); }`, most, factor, y, y)
				return
			}
			w.Each(n)
			w.Add("  st_y(%s + i, ld_y(%s + i) * %s);", y, y, factor)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func unscaleCall(r *shader.Recorder, c *core.Call) error {
	last := len(c.Outs) - 1
	parts, err := r.Reals(max(last, 1))
	if err != nil {
		return err
	}
	f, _ := reduction.Of("normmax", true, math.Inf(1)) // the maximum is infinity or NaN if an element is
	n := 0
	for i := range c.Outs[:last] {
		if c.Outs[i].Numel() == 0 {
			continue
		}
		in := flatten(&c.Outs[i])
		part := core.Operand{Memory: parts, Offset: n, DType: r.RealType()}
		if err := f.Run(r, "optim_normmax", &in, []*core.Operand{&part}, []int64{0}, math.Inf(1)); err != nil {
			return err
		}
		n++
	}
	s := shader.New(r, "optim_unscale")
	from, to, count := s.RealsOf("parts", parts), s.Out("y", &c.Outs[last], expr.F32, expr.Number), s.Uint(n)
	err = s.Run(r, 1, func(w *shader.Text) {
		w.Main(1)
		w.Add(`  var found = 0.0;
  for (var j = 0u; j < %s; j++) {
    let v = parts[%s + j];
    if (plait_isinf_f32(v) || plait_isnan_f32(v)) { found = 1.0; }
  }
  st_y(%s, found);`, count, from, to)
	})
	if err != nil {
		return err
	}
	scaled := *c
	scaled.Outs, scaled.Ins = c.Outs[:last], []core.Operand{{IsNumber: true, Number: core.FloatNumber(contract.OptimFactor(c))}}
	return scaleCall(r, &scaled, false)
}

func clampCall(r *shader.Recorder, c *core.Call) error {
	for i := range c.Outs {
		o := &c.Outs[i]
		s := shader.New(r, "optim_clamp")
		y, n, most := s.InOut("y", o, expr.F32), s.Uint(o.Numel()), s.Float(contract.OptimFactor(c))
		if o.Numel() == 0 {
			continue
		}
		err := s.Run(r, shader.GroupsFor(o.Numel()), func(w *shader.Text) {
			w.Each(n)
			w.Add(`  let v = ld_y(%s + i);
  let m = %s;
  st_y(%s + i, select(select(v, m, v > m), -m, v < -m));`, y, most, y)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
