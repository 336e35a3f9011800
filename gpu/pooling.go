package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("max_pool", maxPoolCall)
	register("avg_pool", func(r *recorder, c *core.Call) error { return averageCall(r, c, &c.Ins[0], &c.Outs[0], false) })
	register("avg_pool_grad", func(r *recorder, c *core.Call) error { return averageCall(r, c, &c.Outs[0], &c.Ins[0], true) })
	register("plane_gather", planeGatherCall)
	register("plane_scatter", planeScatterCall)
}

// A pool is a pooling's geometry, from large to small.
type pool struct {
	window
	planes, divisor      int
	adaptive, includePad bool
}

// newPool reads the attributes: the number nd of spatial dimensions, 1 for adaptive windows, or 0, kernel, stride, padding
// and dilation of each, whether averages count padding, and their divisor or 0.
func newPool(c *core.Call, large, small []int) *pool {
	nd := int(c.Ints[0])
	p := &pool{planes: core.Numel(large[:len(large)-nd]), adaptive: c.Ints[1] != 0}
	if p.adaptive {
		ones, none := make([]int64, nd), make([]int64, nd)
		for i := range ones {
			ones[i] = 1
		}
		p.window = newWindow(large, small, ones, ones, none, ones)
		return p
	}
	of := func(i int) []int64 { return c.Ints[2+i*nd : 2+(i+1)*nd] }
	p.window = newWindow(large, small, of(0), of(1), of(2), of(3))
	p.includePad, p.divisor = c.Ints[2+4*nd] != 0, int(c.Ints[3+4*nd])
	return p
}

// spans returns statements that define, for output o, first_D and last_D, the positions of its window along each dimension
// (last is one past the end), and size, what an average divides by.
func (p *pool) spans(t windowText, divisor string) string {
	text := "  var size = 1u;\n"
	for d := range 3 {
		n := itoa(d)
		if p.adaptive {
			text += "  let first_" + n + " = i32(o_" + n + " * " + t.in[d] + " / " + t.out[d] + ");\n" +
				"  let last_" + n + " = i32(((o_" + n + " + 1u) * " + t.in[d] + " + " + t.out[d] + " - 1u) / " + t.out[d] + ");\n" +
				"  size = size * u32(last_" + n + " - first_" + n + ");\n"
			continue
		}
		text += "  let start_" + n + " = i32(o_" + n + " * " + t.stride[d] + ") - i32(" + t.padding[d] + ");\n" +
			"  let last_" + n + " = min(start_" + n + " + i32((" + t.kernel[d] + " - 1u) * " + t.dilation[d] + ") + 1, i32(" + t.in[d] + "));\n" +
			// The first position inside that a tap falls on.
			"  let skip_" + n + " = max((-start_" + n + " + i32(" + t.dilation[d] + ") - 1) / i32(" + t.dilation[d] + "), 0);\n" +
			"  let first_" + n + " = start_" + n + " + skip_" + n + " * i32(" + t.dilation[d] + ");\n"
		if p.includePad {
			text += "  size = size * u32(max(min(start_" + n + " + i32(" + t.kernel[d] + "), i32(" + t.in[d] + " + " + t.padding[d] + ")) - start_" + n + ", 0));\n"
		} else {
			text += "  size = size * u32(max(last_" + n + " - first_" + n + ", 0));\n"
		}
	}
	if p.divisor != 0 {
		text += "  size = " + divisor + ";\n"
	}
	return text
}

// loops returns a loop over the window's positions, at = position in the plane.
func loops(t windowText, body string) string {
	text := ""
	for d := range 3 {
		n := itoa(d)
		text += "  for (var x_" + n + " = first_" + n + "; x_" + n + " < last_" + n + "; x_" + n + " += i32(" + t.dilation[d] + ")) {\n"
	}
	return text + "    let at = (u32(x_0) * " + t.in[1] + " + u32(x_1)) * " + t.in[2] + " + u32(x_2);\n" + body + "  }}}\n"
}

// holders returns a loop over the outputs o whose windows may hold element e: a range along each dimension.
func (p *pool) holders(t windowText, body string) string {
	text := ""
	for d := range 3 {
		n := itoa(d)
		if p.adaptive {
			text += "  let low_" + n + " = e_" + n + " * " + t.out[d] + " / " + t.in[d] + ";\n" +
				"  let high_" + n + " = min(((e_" + n + " + 1u) * " + t.out[d] + " + " + t.in[d] + " - 1u) / " + t.in[d] + ", " + t.out[d] + ");\n"
			continue
		}
		reach := "i32((" + t.kernel[d] + " - 1u) * " + t.dilation[d] + ") + 1"
		text += "  let high_" + n + " = min((e_" + n + " + " + t.padding[d] + ") / " + t.stride[d] + " + 1u, " + t.out[d] + ");\n" +
			"  let low_" + n + " = u32(max(i32(e_" + n + " + " + t.padding[d] + ") - (" + reach + ") + i32(" + t.stride[d] + "), 0)) / " + t.stride[d] + ";\n"
	}
	for d := range 3 {
		n := itoa(d)
		text += "  for (var o_" + n + " = low_" + n + "; o_" + n + " < high_" + n + "; o_" + n + "++) {\n"
	}
	return text + body + "  }}}\n"
}

// maxPoolCall: Outs[0] = the largest elements of the windows of Ins[0], Outs[1], which may be missing, int64, their positions
// in their planes. A NaN is larger than everything; of equal elements the first is taken.
func maxPoolCall(r *recorder, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	p := newPool(c, x.Shape, y.Shape)
	s := newShader(r, "max_pool")
	t := numbersOf(x.DType)
	from, to := s.in("x", x, t, expr.Number), s.out("y", y, t, expr.Number)
	index := ""
	if s.flag(len(c.Outs) > 1 && c.Outs[1].Present()) {
		index = s.out("index", &c.Outs[1], expr.I64, expr.Number)
	}
	n, plane, places := s.uint(y.Numel()), s.uint(product3(p.in)), s.uint(product3(p.out))
	s.flag(p.adaptive)
	g := p.bind(s)
	if y.Numel() == 0 {
		return nil
	}
	return s.run(r, groupsFor(y.Numel()), func() string {
		better := "v > best || (plait_isnan_f32(v) && !plait_isnan_f32(best))"
		if t == expr.I64 {
			better = "plait_lt_i64(best, v)"
		}
		plain := *p
		plain.includePad, plain.divisor = false, 0
		text := "  let plane = i / " + places + ";\n" + unfold("o", "i % "+places, g.out) + plain.spans(g, "1u") +
			"  var best: " + wgslType(t, expr.Number) + ";\n  var where_best = 0xffffffffu;\n" +
			loops(g, "    let v = ld_x("+from+" + plane * "+plane+" + at);\n    if (where_best == 0xffffffffu || "+better+") { best = v; where_best = at; }\n") +
			"  st_y(" + to + " + i, best);\n"
		if index != "" {
			text += "  st_index(" + index + " + i, vec2<u32>(where_best, 0u));\n"
		}
		return each(n, text)
	})
}

// averageCall is avg_pool, Outs[0] = the averages of the windows of Ins[0], or its transpose.
func averageCall(r *recorder, c *core.Call, large, small *core.Operand, transposed bool) error {
	p := newPool(c, large.Shape, small.Shape)
	out := &c.Outs[0]
	s := newShader(r, "avg_pool")
	from, to := s.in("x", &c.Ins[0], expr.F32, expr.Number), s.out("y", out, expr.F32, expr.Number)
	n, plane, places, divisor := s.uint(out.Numel()), s.uint(product3(p.in)), s.uint(product3(p.out)), s.uint(p.divisor)
	s.flag(p.adaptive)
	s.flag(p.includePad)
	s.flag(p.divisor != 0)
	s.flag(transposed)
	g := p.bind(s)
	if out.Numel() == 0 {
		return nil
	}
	return s.run(r, groupsFor(out.Numel()), func() string {
		if !transposed {
			return each(n, "  let plane = i / "+places+";\n"+unfold("o", "i % "+places, g.out)+p.spans(g, divisor)+"  var sum = 0.0;\n"+
				loops(g, "    sum = sum + ld_x("+from+" + plane * "+plane+" + at);\n")+"  st_y("+to+" + i, sum / f32(size));\n")
		}
		text := "  let plane = i / " + plane + ";\n" + unfold("e", "i % "+plane, g.in) + "  var sum = 0.0;\n"
		return each(n, text+p.holders(g, p.spans(g, divisor)+
			"    sum = sum + ld_x("+from+" + plane * "+places+" + (o_0 * "+g.out[1]+" + o_1) * "+g.out[2]+" + o_2) / f32(size);\n")+"  st_y("+to+" + i, sum);\n")
	})
}

func planeIndex(size int) func(c *core.Call, at uint32) error {
	return func(c *core.Call, at uint32) error {
		return core.Errorf(core.IndexError, c.Op, "the index at position %d is out of range for planes of %d elements", at, size)
	}
}

// planeGatherCall: Outs[0][p, i] = Ins[0][p, Ins[1][p, i]] for planes of the last Ints[0] dimensions. Contiguous.
func planeGatherCall(r *recorder, c *core.Call) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	nd := int(c.Ints[0])
	size, here := core.Numel(in.Shape[len(in.Shape)-nd:]), core.Numel(index.Shape[len(index.Shape)-nd:])
	s := newShader(r, "plane_gather")
	t := numbersOf(in.DType)
	x, k, y := s.in("x", in, t, expr.Number), s.in("index", index, expr.I64, expr.Number), s.out("y", out, t, expr.Number)
	n, sizeWord, hereWord := s.uint(out.Numel()), s.uint(size), s.uint(here)
	fault := s.faults(r, c, planeIndex(size))
	if out.Numel() == 0 {
		return nil
	}
	return s.run(r, groupsFor(out.Numel()), func() string {
		return each(n, "  var ok = true;\n"+checked("k", "ld_index("+k+" + i)", sizeWord, false)+"  if (!ok) { "+fault("i")+" }\n"+
			"  st_y("+y+" + i, ld_x("+x+" + (i / "+hereWord+") * "+sizeWord+" + k));\n")
	})
}

// maxPoolGradient is a scatter to the places of maxima in windows: each element takes the sum of Ins[0] over the windows of which
// Ins[1] has its position. It looks at those that may hold it, not at the whole plane.
func maxPoolGradient(r *recorder, c *core.Call) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	p := newPool(&core.Call{Ints: c.Ints[2:]}, out.Shape, in.Shape)
	s := newShader(r, "max_pool_grad")
	t := numbersOf(in.DType)
	x, k, y := s.in("x", in, t, expr.Number), s.in("index", index, expr.I64, expr.Number), s.out("y", out, t, expr.Number)
	n, plane, places := s.uint(out.Numel()), s.uint(product3(p.in)), s.uint(product3(p.out))
	s.flag(p.adaptive)
	g := p.bind(s)
	if out.Numel() == 0 {
		return nil
	}
	return s.run(r, groupsFor(out.Numel()), func() string {
		return each(n, "  let plane = i / "+plane+";\n  let own = i - plane * "+plane+";\n"+unfold("e", "own", g.in)+
			"  var sum: "+wgslType(t, expr.Number)+";\n"+
			p.holders(g, "    let j = plane * "+places+" + (o_0 * "+g.out[1]+" + o_1) * "+g.out[2]+" + o_2;\n"+
				"    if (ld_index("+k+" + j).x == own) { sum = "+combined(addMode, t, "sum", "ld_x("+x+" + j)")+"; }\n")+
			"  st_y("+y+" + i, sum);\n")
	})
}

// planeScatterCall: Outs[0] = 0, then Outs[0][p, Ins[1][p, i]] += Ins[0][p, i], or = if Ints[1] is 0, for planes of the last
// Ints[0] dimensions. Contiguous. Of the elements of a plane that go to one place, the first takes them all, in their order,
// or the last is the one. Where the index is a max pooling's, its attributes follow in Ints.
func planeScatterCall(r *recorder, c *core.Call) error {
	if len(c.Ints) > 2 {
		return maxPoolGradient(r, c)
	}
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	zero := core.Call{Op: c.Op, Outs: []core.Operand{*out}, Ins: []core.Operand{{IsNumber: true}}}
	if err := copyCall(r, &zero); err != nil {
		return err
	}
	nd, add := int(c.Ints[0]), c.Ints[1] != 0
	size, here := core.Numel(out.Shape[len(out.Shape)-nd:]), core.Numel(index.Shape[len(index.Shape)-nd:])
	s := newShader(r, "plane_scatter")
	t := numbersOf(in.DType)
	x, k, y := s.in("x", in, t, expr.Number), s.in("index", index, expr.I64, expr.Number), s.out("y", out, t, expr.Number)
	n, sizeWord, hereWord := s.uint(in.Numel()), s.uint(size), s.uint(here)
	fault := s.faults(r, c, planeIndex(size))
	s.flag(add)
	if in.Numel() == 0 {
		return nil
	}
	return s.run(r, groupsFor(in.Numel()), func() string {
		text := "  var ok = true;\n" + checked("k", "ld_index("+k+" + i)", sizeWord, false) + "  if (!ok) { " + fault("i") + " return; }\n" +
			"  let plane = i / " + hereWord + ";\n  let begin = plane * " + hereWord + ";\n  let end = begin + " + hereWord + ";\n"
		same := "ld_index(" + k + " + j).x == k"
		to := "  st_y(" + y + " + plane * " + sizeWord + " + k, "
		if !add {
			return each(n, text+"  for (var j = i + 1u; j < end; j++) { if ("+same+") { return; } }\n"+to+"ld_x("+x+" + i));\n")
		}
		sum := "0.0"
		if t == expr.I64 {
			sum = "vec2<u32>(0u, 0u)"
		}
		return each(n, text+"  for (var j = begin; j < i; j++) { if ("+same+") { return; } }\n  var sum = "+sum+";\n"+
			"  for (var j = i; j < end; j++) { if ("+same+") { sum = "+combined(addMode, t, "sum", "ld_x("+x+" + j)")+"; } }\n"+to+"sum);\n")
	})
}
