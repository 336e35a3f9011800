package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("mask_count", func(r *recorder, c *core.Call) error {
		f := counting("vec2<u32>(a.f0, 0u)", expr.I64, expr.Number)
		dims := make([]int64, len(c.Ins[0].Shape))
		for i := range dims {
			dims[i] = int64(i)
		}
		return f.run(r, "mask_count", &c.Ins[0], []*core.Operand{&c.Outs[0]}, dims, 0)
	})
	register("mask_positions", func(r *recorder, c *core.Call) error { return positionsCall(r, c, 0) })
	register("nonzero", func(r *recorder, c *core.Call) error { return positionsCall(r, c, 1) })
	register("masked_select", maskedSelectCall)
	register("masked_scatter", maskedScatterCall)
	register("pad", padCall)
	register("pad_grad", padGradCall)
}

// ranks returns scratch memory with, for each element of a mask in row-major order, how many true ones come before it.
func ranks(r *recorder, mask *core.Operand) (core.Memory, error) {
	l := newLayout(mask.Shape, mask)
	return r.prefix("mask ranks", mask.Numel(), func(s *shader) func() string {
		x := s.in("x", mask, expr.F32, expr.Logic)
		rank := s.choose(len(l.sizes))
		at := s.loop(&l)
		return func() string {
			return "fn counted(i: u32) -> u32 {\n" + walk(rank, 1, at, []string{x}) + "  return select(0u, 1u, ld_x(at_0));\n}\n"
		}
	})
}

// positionsCall: Outs[0], int64 of shape [n, count] or, where coordinates is 1, [count, n], = the n indices of each true element
// of Ins[0].
func positionsCall(r *recorder, c *core.Call, coordinates int) error {
	mask, out := &c.Ins[0], &c.Outs[0]
	if mask.Numel() == 0 || out.Numel() == 0 {
		return nil
	}
	m, err := ranks(r, mask)
	if err != nil {
		return err
	}
	s := newShader(r, "mask_positions")
	x, before, y := s.in("x", mask, expr.F32, expr.Logic), s.wordsOf("ranks", m), s.out("y", out, expr.I64, expr.Number)
	count := s.uint(mask.Numel())
	sizes := make([]string, len(mask.Shape))
	for i, n := range mask.Shape {
		sizes[i] = s.uint(n)
	}
	along, across := s.uint(out.Strides[coordinates]), s.uint(out.Strides[1-coordinates])
	l := newLayout(mask.Shape, mask)
	s.choose(len(sizes))
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return s.run(r, groupsFor(mask.Numel()), func() string {
		text := walk(rank, 1, at, []string{x}) + "  if (!ld_x(at_0)) { return; }\n  let column = ranks[" + before + " + i];\n  var rest = i;\n"
		for d := len(sizes) - 1; d >= 0; d-- {
			text += "  st_y(" + y + " + " + itoa(d) + "u * " + along + " + column * " + across + ", vec2<u32>(rest % " + sizes[d] + ", 0u));\n  rest = rest / " + sizes[d] + ";\n"
		}
		return each(count, text)
	})
}

// maskedSelectCall: Outs[0], contiguous, = the elements of Ins[0] where Ins[1] is true, in row-major order.
func maskedSelectCall(r *recorder, c *core.Call) error {
	in, mask, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	if mask.Numel() == 0 || out.Numel() == 0 {
		return nil
	}
	m, err := ranks(r, mask)
	if err != nil {
		return err
	}
	s := newShader(r, "masked_select")
	t := numbersOf(in.DType)
	x, k, before, y := s.in("x", in, t, expr.Number), s.in("mask", mask, expr.F32, expr.Logic), s.wordsOf("ranks", m), s.out("y", out, t, expr.Number)
	count, most := s.uint(mask.Numel()), s.uint(out.Numel())
	l := newLayout(mask.Shape, in, mask)
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return s.run(r, groupsFor(mask.Numel()), func() string {
		return each(count, walk(rank, 2, at, []string{x, k})+"  let to = ranks["+before+" + i];\n  if (ld_mask(at_1) && to < "+most+") { st_y("+y+" + to, ld_x(at_0)); }\n")
	})
}

// maskedScatterCall, in place: the elements of Outs[0] where Ins[0] is true = those of Ins[1], contiguous, in order.
func maskedScatterCall(r *recorder, c *core.Call) error {
	out, mask, src := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	if mask.Numel() == 0 {
		return nil
	}
	m, err := ranks(r, mask)
	if err != nil {
		return err
	}
	s := newShader(r, "masked_scatter")
	t := numbersOf(out.DType)
	y, k, before, x := s.out("y", out, t, expr.Number), s.in("mask", mask, expr.F32, expr.Logic), s.wordsOf("ranks", m), s.in("x", src, t, expr.Number)
	count, most := s.uint(mask.Numel()), s.uint(src.Numel())
	trues, has := mask.Numel(), src.Numel()
	fault := s.faults(r, c, func(c *core.Call, _ uint32) error {
		return core.Errorf(core.ValueError, c.Op, "the mask has more true elements, of %d, than the source has, %d", trues, has)
	})
	l := newLayout(mask.Shape, out, mask)
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return s.run(r, groupsFor(mask.Numel()), func() string {
		return each(count, walk(rank, 2, at, []string{y, k})+"  if (!ld_mask(at_1)) { return; }\n  let k = ranks["+before+" + i];\n"+
			"  if (k >= "+most+") { "+fault("i")+" return; }\n  st_y(at_0, ld_x("+x+" + k));\n")
	})
}

// A padding is of the last nd dimensions: constant, reflected, replicated or circular.
type padding struct {
	sizes [2][]int // inside, and with the padding
	left  []int
	mode  int
}

func newPadding(c *core.Call, inside, outside []int) padding {
	nd := int(c.Ints[0])
	p := padding{mode: int(c.Ints[1]), left: make([]int, len(inside))}
	p.sizes[0], p.sizes[1] = inside, outside
	for i := range nd {
		p.left[len(inside)-nd+i] = int(c.Ints[2+i])
	}
	return p
}

// origin returns statements that define o, the position inside of the coordinate q of a padded dimension, and change ok.
func (p padding) origin(left, size string) string {
	text := "  var o = i32(q) - i32(" + left + ");\n"
	switch p.mode {
	case 0:
		return text + "  if (o < 0 || o >= i32(" + size + ")) { ok = false; o = 0; }\n"
	case 1:
		return text + "  o = abs(o);\n  if (o >= i32(" + size + ")) { o = 2 * (i32(" + size + ") - 1) - o; }\n"
	case 2:
		return text + "  o = clamp(o, 0, i32(" + size + ") - 1);\n"
	}
	return text + "  o = ((o % i32(" + size + ")) + i32(" + size + ")) % i32(" + size + ");\n"
}

// padCall: Outs[0] = Ins[0] padded, with the number Ins[1] in mode 0. Contiguous. Ints: nd, mode, and what is in front of
// each dimension.
func padCall(r *recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	p := newPadding(c, in.Shape, out.Shape)
	s := newShader(r, "pad")
	t := numbersOf(in.DType)
	x, y, count := s.in("x", in, t, expr.Number), s.out("y", out, t, expr.Number), s.uint(out.Numel())
	fill := ""
	if t == expr.F32 {
		fill = s.float(c.Ins[1].Number.Float)
	} else {
		fill = s.long(c.Ins[1].Number.Int)
	}
	s.choose(p.mode)
	s.choose(len(in.Shape))
	var left, inside, outside []string
	for d := range in.Shape {
		left, inside, outside = append(left, s.uint(int(uint32(int32(p.left[d]))))), append(inside, s.uint(in.Shape[d])), append(outside, s.uint(out.Shape[d]))
	}
	if out.Numel() == 0 {
		return nil
	}
	return s.run(r, groupsFor(out.Numel()), func() string {
		text := "  var ok = true;\n  var rest = i;\n  var at = 0u;\n  var scale = 1u;\n"
		for d := len(left) - 1; d >= 0; d-- {
			text += "  {\n  let q = rest % " + outside[d] + ";\n  rest = rest / " + outside[d] + ";\n" + p.origin(left[d], inside[d]) +
				"  at = at + u32(o) * scale;\n  scale = scale * " + inside[d] + ";\n  }\n"
		}
		return each(count, text+"  var v = "+fill+";\n  if (ok) { v = ld_x("+x+" + at); }\n  st_y("+y+" + i, v);\n")
	})
}

// padGradCall: Outs[0] = the gradient of the input of pad for the gradient Ins[0] of its output. Each element adds up those of
// the padded ones that are it: along each dimension, itself and a few others.
func padGradCall(r *recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	p := newPadding(c, out.Shape, in.Shape)
	nd := int(c.Ints[0])
	// Dimension after dimension: what is padded last is taken back first.
	from := *in
	for d := len(out.Shape) - nd; d < len(out.Shape); d++ {
		shape := append([]int{}, from.Shape...)
		shape[d] = out.Shape[d]
		to := out
		if d < len(out.Shape)-1 {
			m, err := r.temp(4 * max(core.Numel(shape), 1))
			if err != nil {
				return err
			}
			to = floatOperand(m, 0, shape...)
		}
		if err := p.fold(r, &from, to, d); err != nil {
			return err
		}
		from = *floatLike(to, shape...)
	}
	return nil
}

// fold takes the padding of dimension d back.
func (p padding) fold(r *recorder, in, out *core.Operand, d int) error {
	s := newShader(r, "pad_grad")
	x, y, count := s.in("x", in, expr.F32, expr.Number), s.out("y", out, expr.F32, expr.Number), s.uint(core.Numel(out.Shape))
	inside, outside, inner, left := s.uint(out.Shape[d]), s.uint(in.Shape[d]), s.uint(core.Numel(out.Shape[d+1:])), s.uint(int(uint32(int32(p.left[d]))))
	s.choose(p.mode)
	n := core.Numel(out.Shape)
	if n == 0 {
		return nil
	}
	return s.run(r, groupsFor(n), func() string {
		return each(count, "  let column = i % "+inner+";\n  let own = (i / "+inner+") % "+inside+";\n  let row = i / ("+inner+" * "+inside+");\n  var sum = 0.0;\n"+
			"  for (var q = 0u; q < "+outside+"; q++) {\n  var ok = true;\n"+p.origin(left, inside)+
			"  if (ok && u32(o) == own) { sum = sum + ld_x("+x+" + (row * "+outside+" + q) * "+inner+" + column); }\n  }\n  st_y("+y+" + i, sum);\n")
	})
}
