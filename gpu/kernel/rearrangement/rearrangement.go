// Package rearrangement has the GPU kernels of triangular parts of matrices and of repeated indices.
package rearrangement

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.RepeatIndex, repeatIndexCall)
	kernel.Register(contract.Triangle, triangleCall)
}

// repeatIndexCall: Outs[0] repeats each index i of the vector Ins[0] Ins[0][i] times. Each invocation searches for the index of its result.
func repeatIndexCall(r *shader.Recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	if out.Numel() == 0 {
		return nil
	}
	s := shader.New(r, "repeat_index")
	x, y, n, size, step := s.In("x", in, expr.I64, expr.Number), s.Out("y", out, expr.I64, expr.Number), s.Uint(out.Numel()), s.Uint(in.Numel()), s.Uint(in.Strides[0])
	return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Add(`  var left = i;
  for (var j = 0u; j < %s; j++) {
    let times = ld_x(%s + j * %s).x;
    if (left < times) { st_y(%s + i, pair(j, 0u)); return; }
    left = left - times;
  }`, size, x, step, y)
	})
}

// triangleCall: Outs[0] = the part of each matrix of Ins[0] on and below the diagonal Ints[0], or on and above it if Ints[1] is set. It may
// work in place.
func triangleCall(r *shader.Recorder, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	n := len(out.Shape)
	s := shader.New(r, "triangle")
	t := expr.F32
	if !out.DType.IsFloat() {
		t = expr.I64
	}
	x, y := s.In("x", in, t, expr.Number), s.Out("y", out, t, expr.Number)
	rows, cols := s.Uint(out.Shape[n-2]), s.Uint(out.Shape[n-1])
	l := shader.NewLoop(out.Shape, in, out)
	a := contract.TriangleOf(c)
	diagonal := "bitcast<i32>(" + s.Uint(int(uint32(int32(a.Diagonal)))) + ")"
	upper, several := s.Flag(a.Upper), s.Flag(n > 2)
	wide, units := 1, out.Numel()
	if s.Flag(l.Flat() && out.Shape[n-1]%4 == 0 && s.Aligned(in) && s.Aligned(out)) {
		wide, units = 4, units/4
		s.Bindings[0].Vec4, s.Bindings[1].Vec4 = true, true
	}
	unitsWord := s.Uint(units)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, shader.GroupsFor(units), func(w *shader.Text) {
		test := "i32(col) - i32(row) <= " + diagonal
		if upper {
			test = "i32(col) - i32(row) >= " + diagonal
		}
		w.Each(unitsWord)
		w.Add("  var row = (i * %[1]du) / %[2]s;\n  var col = i * %[1]du - row * %[2]s;", wide, cols)
		if several {
			w.Add("  row = row %% %s;", rows)
		}
		if wide == 4 {
			w.Add("  var v = x[(%s >> 2u) + i];", x)
			for k := range 4 {
				w.Add("  if (!(%s)) { v.%s = 0.0; }\n  col++;", test, shader.Component(k))
			}
			w.Add("  y[(%s >> 2u) + i] = v;", y)
			return
		}
		w.Put(shader.Walk(rank, 2, at, []string{x, y}))
		w.Add(`  var v: %s;
  if (%s) { v = ld_x(at_0); }
  st_y(at_1, v);`, shader.TypeName(t, expr.Number), test)
	})
}
