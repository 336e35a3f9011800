package indexing

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/reduction"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.MaskCount, func(r *shader.Recorder, c *core.Call) error {
		f := reduction.Count("pair(a.f0, 0u)", expr.I64, expr.Number)
		dims := make([]int64, len(c.Ins[0].Shape))
		for i := range dims {
			dims[i] = int64(i)
		}
		return f.Run(r, "mask_count", &c.Ins[0], []*core.Operand{&c.Outs[0]}, dims, 0)
	})
	kernel.Register(contract.MaskPositions, func(r *shader.Recorder, c *core.Call) error { return positionsCall(r, c, 0) })
	kernel.Register(contract.Nonzero, func(r *shader.Recorder, c *core.Call) error { return positionsCall(r, c, 1) })
	kernel.Register(contract.MaskedSelect, maskedSelectCall)
	kernel.Register(contract.MaskedScatter, maskedScatterCall)
}

// ranks numbers the true elements of a mask in row-major order. Four of a contiguous mask are one access.
func ranks(r *shader.Recorder, mask *core.Operand) (*primitive.Ranks, error) {
	n, l := mask.Numel(), shader.NewLoop(mask.Shape, mask)
	return primitive.NewRanks(r, "mask ranks", n, func(s *shader.Builder) func(w *shader.Text) {
		x, count := s.In("mask", mask, expr.F32, expr.Logic), s.Uint(n)
		if s.Flag(l.Flat() && !l.Repeats(0) && n%4 == 0 && shader.Base(mask)%4 == 0) {
			b := &s.Bindings[len(s.Bindings)-1]
			b.Vec4 = true
			return func(w *shader.Text) {
				w.Func("counted4(q: u32) -> word4", `if (q * 4u >= %s) { return word4(0u); }
%s  return word4(select(0u, 1u, mask_0), select(0u, 1u, mask_1), select(0u, 1u, mask_2), select(0u, 1u, mask_3));`,
					count, b.LoadVec4(w, expr.F32, expr.Logic, x+" + q * 4u"))
			}
		}
		rank := s.Specialize(len(l.Sizes))
		at := s.Loop(&l)
		return func(w *shader.Text) {
			w.Func("counted(i: u32) -> u32", "if (i >= %s) { return 0u; }\n%s  return select(0u, 1u, ld_mask(at_0));", count, shader.Walk(rank, 1, at, []string{x}))
			w.Func("counted4(q: u32) -> word4", "return word4(counted(4u * q), counted(4u * q + 1u), counted(4u * q + 2u), counted(4u * q + 3u));")
		}
	})
}

// positionsCall: Outs[0] = the indices of the true elements of Ins[0], int64 of shape [n, count] or, if coordinates is 1, [count, n].
func positionsCall(r *shader.Recorder, c *core.Call, coordinates int) error {
	mask, out := &c.Ins[0], &c.Outs[0]
	if mask.Numel() == 0 || out.Numel() == 0 {
		return nil
	}
	m, err := ranks(r, mask)
	if err != nil {
		return err
	}
	s := shader.New(r, "mask_positions")
	each, y := m.Bind(s), s.Out("y", out, expr.I64, expr.Number)
	sizes := make([]string, len(mask.Shape))
	for i, n := range mask.Shape {
		sizes[i] = s.Uint(n)
	}
	along, across := s.Uint(out.Strides[coordinates]), s.Uint(out.Strides[1-coordinates])
	s.Specialize(len(sizes))
	most := s.Uint(out.Shape[coordinates^1])
	return s.Run(r, m.Groups(), func(w *shader.Text) {
		body := fmt.Sprintf("    if (rank >= %s) { return; }\n    var rest = i;\n", most)
		for d := len(sizes) - 1; d >= 0; d-- {
			if d == 0 {
				body += fmt.Sprintf("    st_y(%s + rank * %s, pair(rest, 0u));\n", y, across)
				continue
			}
			body += fmt.Sprintf("    let q%[1]d = rest / %[5]s;\n    st_y(%[2]s + %[1]du * %[3]s + rank * %[4]s, pair(rest - q%[1]d * %[5]s, 0u));\n    rest = q%[1]d;\n", d, y, along, across, sizes[d])
		}
		each(w, body)
	})
}

// maskedSelectCall: Outs[0], contiguous, = the elements of Ins[0] where Ins[1] is true, in row-major order.
func maskedSelectCall(r *shader.Recorder, c *core.Call) error {
	in, mask, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	if mask.Numel() == 0 || out.Numel() == 0 {
		return nil
	}
	m, err := ranks(r, mask)
	if err != nil {
		return err
	}
	s := shader.New(r, "masked_select")
	t := shader.ComputeType(in.DType)
	each, x, y := m.Bind(s), s.In("x", in, t, expr.Number), s.Out("y", out, t, expr.Number)
	most := s.Uint(out.Numel())
	l := shader.NewLoop(mask.Shape, in)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, m.Groups(), func(w *shader.Text) {
		each(w, fmt.Sprintf("%s    if (rank < %s) { st_y(%s + rank, ld_x(at_0)); }\n", shader.Walk(rank, 1, at, []string{x}), most, y))
	})
}

// maskedScatterCall: the elements of Outs[0] where Ins[0] is true = those of Ins[1], contiguous, in order. It works in place.
func maskedScatterCall(r *shader.Recorder, c *core.Call) error {
	out, mask, src := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	if mask.Numel() == 0 {
		return nil
	}
	m, err := ranks(r, mask)
	if err != nil {
		return err
	}
	s := shader.New(r, "masked_scatter")
	t := shader.ComputeType(out.DType)
	each, y, x := m.Bind(s), s.Out("y", out, t, expr.Number), s.In("x", src, t, expr.Number)
	most := s.Uint(src.Numel())
	trues, has := mask.Numel(), src.Numel()
	fault := s.Faults(r, c, func(c *core.Call, _ uint32) error {
		return core.Errorf(core.ValueError, c.Op, "the mask has more true elements, of %d, than the source has, %d", trues, has)
	})
	l := shader.NewLoop(mask.Shape, out)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, m.Groups(), func(w *shader.Text) {
		each(w, fmt.Sprintf("%s    if (rank >= %s) { %s return; }\n    st_y(at_0, ld_x(%s + rank));\n", shader.Walk(rank, 1, at, []string{y}), most, fault("i"), x))
	})
}
