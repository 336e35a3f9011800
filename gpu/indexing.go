package gpu

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("gather", gatherCall)
	register("scatter", scatterCall)
	register("index", indexCall)
	register("index_put", indexPutCall)
	register("embedding_backward", embeddingBackwardCall)
}

// How values that meet in one element are combined.
const (
	assignMode = iota
	addMode
	mulMode
	maxMode
	minMode
)

// nowhere is the destination of what is written nowhere.
const nowhere = "0xffffffffu"

// numbersOf returns the type in which elements of a dtype are moved and combined.
func numbersOf(d core.DType) expr.Type {
	if d.IsFloat() {
		return expr.F32
	}
	return expr.I64
}

// faults adds a fault word to the shader and returns the assignment that sets it to one more than a position.
func (s *shader) faults(r *recorder, c *core.Call, err func(c *core.Call, at uint32) error) func(position string) string {
	m, word, failure := r.check(c, func(c *core.Call, fault uint32) error { return err(c, fault-1) })
	if failure != nil {
		s.err = failure
	}
	index := s.uint(int(word))
	s.binds = append(s.binds, binding{access: access{name: "faults", dtype: core.Bool}})
	s.mems = append(s.mems, m)
	return func(position string) string { return "faults[" + index + "] = " + position + " + 1u;" }
}

func outOfRange(c *core.Call, at uint32, dim, size int) error {
	return core.Errorf(core.IndexError, c.Op, "the index at position %d is out of range for dimension %d of size %d", at, dim, size)
}

// checked returns statements that define NAME, the index read by load, within [0, size), and set ok to false where it is
// not. With wrap, negative indices count from the end.
func checked(name, load, size string, wrap bool) string {
	text := "  var raw_" + name + " = " + load + ";\n"
	if wrap {
		text += "  if (raw_" + name + ".y == 0xffffffffu) { raw_" + name + " = plait_add_i64(raw_" + name + ", vec2<u32>(" + size + ", 0u)); }\n"
	}
	return text + "  var " + name + " = raw_" + name + ".x;\n" +
		"  if (raw_" + name + ".y != 0u || " + name + " >= " + size + ") { ok = false; " + name + " = 0u; }\n"
}

// gatherCall: Outs[0][.., j, ..] = Ins[0][.., Ins[1][.., j, ..], ..] in dimension Ints[0].
func gatherCall(r *recorder, c *core.Call) error {
	out, in, index := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	dim := int(c.Ints[0])
	if out.Numel() == 0 {
		return nil
	}
	from := *in // along the dimension the index says where
	size, stride := 1, 0
	if len(in.Shape) > 0 {
		size, stride = in.Shape[dim], in.Strides[dim]
		from.Shape, from.Strides = out.Shape, append([]int{}, in.Strides...)
		from.Strides[dim] = 0
	}
	s := newShader(r, "gather")
	t := numbersOf(in.DType)
	x, j, y := s.in("x", in, t, expr.Number), s.in("index", index, expr.I64, expr.Number), s.out("y", out, t, expr.Number)
	count, sizeWord, step := s.uint(out.Numel()), s.uint(size), s.uint(stride)
	fault := s.faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	l := newLayout(out.Shape, &from, index, out)
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return s.run(r, groupsFor(out.Numel()), func() string {
		return each(count, walk(rank, 3, at, []string{x, j, y})+"  var ok = true;\n"+checked("k", "ld_index(at_1)", sizeWord, false)+
			"  if (!ok) { "+fault("i")+" }\n  st_y(at_2, ld_x(at_0 + k * "+step+"));\n")
	})
}

// combined returns the value of old and new under a mode.
func combined(mode int, t expr.Type, a, b string) string {
	if t == expr.I64 {
		return [...]string{b, "plait_add_i64(" + a + ", " + b + ")", "plait_mul_i64(" + a + ", " + b + ")", "plait_max_i64(" + a + ", " + b + ")", "plait_min_i64(" + a + ", " + b + ")"}[mode]
	}
	return [...]string{b, a + " + " + b, a + " * " + b, "plait_max_f32(" + a + ", " + b + ")", "plait_min_f32(" + a + ", " + b + ")"}[mode]
}

// shortLine is how long a line is at most that each of its elements looks through.
const shortLine = 64

// scatterCall, in place: Outs[0][.., Ins[0][.., j, ..], ..] = Ins[1][.., j, ..] in dimension Ints[0], or combined as Ints[1]
// says. Ins[1] may be a number. Of the elements of a line that go to one place, the first (the last, where they are not
// combined) takes them all, in their order.
func scatterCall(r *recorder, c *core.Call) error {
	out, index, src := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	dim, mode := int(c.Ints[0]), int(c.Ints[1])
	n := index.Numel()
	if n == 0 {
		return nil
	}
	size, stride, length, indexStep, srcStep := 1, 0, 1, 0, 0
	to := *out
	if len(index.Shape) > 0 && index.Shape[dim] > shortLine {
		return scatterSorted(r, c)
	}
	if len(index.Shape) > 0 {
		size, stride, length, indexStep = out.Shape[dim], out.Strides[dim], index.Shape[dim], index.Strides[dim]
		to.Shape, to.Strides = index.Shape, append([]int{}, out.Strides...)
		to.Strides[dim] = 0
	}
	from := *src
	if !src.IsNumber {
		if len(index.Shape) > 0 {
			srcStep = src.Strides[dim]
		}
		from.Shape = index.Shape
	}
	s := newShader(r, "scatter")
	t := numbersOf(out.DType)
	j, y := s.in("index", index, expr.I64, expr.Number), s.both("y", out, t)
	value, first := "", "0u"
	if s.flag(src.IsNumber) {
		if t == expr.F32 {
			value = s.float(src.Number.Float)
		} else {
			value = s.long(src.Number.Int)
		}
	} else {
		first = s.in("v", src, t, expr.Number)
	}
	count, sizeWord, step, lengthWord := s.uint(n), s.uint(size), s.uint(stride), s.uint(length)
	indexStepWord, srcStepWord := s.uint(indexStep), s.uint(srcStep)
	fault := s.faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	s.choose(mode)
	l := newLayout(index.Shape, index, &to, &from)
	inner := s.uint(core.Numel(index.Shape[min(dim+1, len(index.Shape)):]))
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return s.run(r, groupsFor(n), func() string {
		read := value
		if read == "" {
			read = "ld_v(v0 + o * " + srcStepWord + ")"
		}
		text := walk(rank, 3, at, []string{j, y, first}) + "  var ok = true;\n" + checked("k", "ld_index(at_0)", sizeWord, false) +
			"  if (!ok) { " + fault("i") + " return; }\n" + fmt.Sprintf(`
  let own = (i / %s) %% %s;
  let j0 = at_0 - own * %s;
  let v0 = at_2 - own * %s;
  let at = at_1 + k * %s;
`, inner, lengthWord, indexStepWord, srcStepWord, step)
		if mode == assignMode {
			return each(count, text+`
  for (var o = own + 1u; o < `+lengthWord+`; o++) { if (ld_index(j0 + o * `+indexStepWord+`).x == k) { return; } }
  let o = own;
  st_y(at, `+read+`);
`)
		}
		return each(count, text+`
  for (var o = 0u; o < own; o++) { if (ld_index(j0 + o * `+indexStepWord+`).x == k) { return; } }
  var sum = ld_y(at);
  for (var o = own; o < `+lengthWord+`; o++) {
    if (ld_index(j0 + o * `+indexStepWord+`).x == k) { let v = `+read+`; sum = `+combined(mode, t, "sum", "v")+`; }
  }
  st_y(at, sum);
`)
	})
}

// scatterSorted is scatterCall for lines of any length.
func scatterSorted(r *recorder, c *core.Call) error {
	out, index, src := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	dim := int(c.Ints[0])
	n, length, size := index.Numel(), index.Shape[dim], out.Shape[dim]
	dest, err := r.temp(4 * n)
	if err != nil {
		return err
	}
	to := *out // along the dimension the index says where
	to.Shape, to.Strides = index.Shape, slices.Clone(out.Strides)
	to.Strides[dim] = 0
	lined, toLined := innermost(index, dim), innermost(&to, dim)
	s := newShader(r, "scatter destinations")
	j, words, count, first := s.in("index", index, expr.I64, expr.Number), s.wordsOf("dest", dest), s.uint(n), s.uint(int(base(out)))
	sizeWord, step, lengthWord, inner := s.uint(size), s.uint(out.Strides[dim]), s.uint(length), s.uint(core.Numel(index.Shape[dim+1:]))
	fault := s.faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	l := newLayout(lined.Shape, &lined, &toLined)
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	err = s.run(r, groupsFor(n), func() string {
		return each(count, walk(rank, 2, at, []string{j, first})+"  var ok = true;\n"+checked("k", "ld_index(at_0)", sizeWord, false)+fmt.Sprintf(`
  if (!ok) {
    let line = i / %[1]s;
    let position = ((line / %[2]s) * %[1]s + i %% %[1]s) * %[2]s + line %% %[2]s;
    %[3]s
    dest[%[4]s + i] = `+nowhere+`;
    return;
  }
  dest[%[4]s + i] = at_1 + k * %[5]s;
`, lengthWord, inner, fault("position"), words, step))
	})
	if err != nil {
		return err
	}
	values := *src
	if !src.IsNumber {
		values.Shape = index.Shape
		values = innermost(&values, dim)
	}
	p := placing{dest: dest, lines: n / length, n: length, mode: int(c.Ints[1])}
	return p.rows(out, len(out.Shape), &values, len(index.Shape)).run(r)
}

// innermost returns an operand with a dimension behind the others.
func innermost(o *core.Operand, dim int) core.Operand {
	moved := *o
	moved.Shape = append(slices.Delete(slices.Clone(o.Shape), dim, dim+1), o.Shape[dim])
	moved.Strides = append(slices.Delete(slices.Clone(o.Strides), dim, dim+1), o.Strides[dim])
	return moved
}

// restOf returns an operand's dimensions from the given one on.
func restOf(o *core.Operand, from int) core.Operand {
	rest := *o
	rest.Shape, rest.Strides = o.Shape[from:], o.Strides[from:]
	return rest
}

// frontOf returns an operand's dimensions before the given one.
func frontOf(o *core.Operand, to int) core.Operand {
	front := *o
	front.Shape, front.Strides = o.Shape[:to], o.Strides[:to]
	return front
}

// maxIndices is how many index tensors a program binds beside its other operands.
const maxIndices = 5

// indexCall: Outs[0][b.., r..] = Ins[0][Ins[1][b..], Ins[2][b..], .., r..]: the first dimensions of Ins[0] are indexed by
// tensors of one shape. With Ints[0], negative indices count from the end. The rest of Ints are the dimensions' names in
// messages.
func indexCall(r *recorder, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	k := len(c.Ins) - 1
	if out.Numel() == 0 {
		return nil
	}
	if k > maxIndices {
		return core.Errorf(core.NotImplemented, c.Op, "%d index tensors are more than a program binds, %d", k, maxIndices)
	}
	front, wrap := len(c.Ins[1].Shape), c.Ints[0] != 0
	s := newShader(r, "index")
	t := numbersOf(in.DType)
	x, y := s.in("x", in, t, expr.Number), s.out("y", out, t, expr.Number)
	outFront, outRest, inRest := frontOf(out, front), restOf(out, front), restOf(in, k)
	operands := []*core.Operand{&outFront}
	starts := []string{y}
	for i := range k {
		operands = append(operands, &c.Ins[1+i])
		starts = append(starts, s.in("index"+itoa(i), &c.Ins[1+i], expr.I64, expr.Number))
	}
	fault := s.faults(r, c, func(c *core.Call, at uint32) error {
		return outOfRange(c, at/8, int(c.Ints[1+at%8]), c.Ins[0].Shape[at%8])
	})
	s.flag(wrap)
	s.choose(k)
	var sizes, steps []string
	for i := range k {
		sizes, steps = append(sizes, s.uint(in.Shape[i])), append(steps, s.uint(in.Strides[i]))
	}
	outer, inner := newLayout(outFront.Shape, operands...), newLayout(inRest.Shape, &inRest, &outRest)
	n := out.Numel()
	fours := s.flag(inFours(&outer, &inner, in, out, k))
	if fours {
		s.binds[0].four, s.binds[1].four = true, true
		inner = inner.quarter()
		n /= 4
	}
	count, rest := s.uint(n), s.uint(inner.count)
	outerRank, innerRank := s.choose(len(outer.sizes)), s.choose(len(inner.sizes))
	outerAt, innerAt := s.loop(&outer), s.loop(&inner)
	return s.run(r, groupsFor(n), func() string {
		text := "  let b = i / " + rest + ";\n  let q = i % " + rest + ";\n" +
			walkAs("at_", "b", outerRank, 1+k, outerAt, starts) + walkAs("in_", "q", innerRank, 2, innerAt, []string{x, "at_0"})
		for i := range k {
			n := itoa(i)
			text += "  {\n  var ok = true;\n" + checked("k"+n, "ld_index"+n+"(at_"+itoa(1+i)+")", sizes[i], wrap) +
				"  if (!ok) { " + fault("(b * 8u + "+n+"u)") + " }\n  in_0 = in_0 + k" + n + " * " + steps[i] + ";\n  }\n"
		}
		if fours {
			return each(count, text+"  y[in_1 >> 2u] = x[in_0 >> 2u];\n")
		}
		return each(count, text+"  st_y(in_1, ld_x(in_0));\n")
	})
}

// inFours reports whether what k indices choose of in is copied to out by fours: outer and inner are the loops over the indices and over
// the elements that each chooses.
func inFours(outer, inner *layout, in, out *core.Operand, k int) bool {
	divides := func(n int) bool { return n%4 == 0 }
	last := len(inner.sizes) - 1
	if last < 0 || !divides(inner.sizes[last]) || in.DType != core.Float32 || !divides(int(base(in))) || !divides(int(base(out))) {
		return false
	}
	for _, s := range inner.strides {
		if s[last] != 1 || !all(s[:last], divides) {
			return false
		}
	}
	return all(in.Strides[:k], divides) && all(outer.strides[0], divides)
}
