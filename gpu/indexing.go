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
	count, rest := s.uint(out.Numel()), s.uint(core.Numel(inRest.Shape))
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
	outerRank, innerRank := s.choose(len(outer.sizes)), s.choose(len(inner.sizes))
	outerAt, innerAt := s.loop(&outer), s.loop(&inner)
	return s.run(r, groupsFor(out.Numel()), func() string {
		text := "  let b = i / " + rest + ";\n  let q = i % " + rest + ";\n" +
			walkAs("at_", "b", outerRank, 1+k, outerAt, starts) + walkAs("in_", "q", innerRank, 2, innerAt, []string{x, "at_0"})
		for i := range k {
			n := itoa(i)
			text += "  {\n  var ok = true;\n" + checked("k"+n, "ld_index"+n+"(at_"+itoa(1+i)+")", sizes[i], wrap) +
				"  if (!ok) { " + fault("(b * 8u + "+n+"u)") + " }\n  in_0 = in_0 + k" + n + " * " + steps[i] + ";\n  }\n"
		}
		return each(count, text+"  st_y(in_1, ld_x(in_0));\n")
	})
}

// destinations writes, for each index into the front of out, the position of its first element in out's slab, or nowhere,
// and reports indices out of range.
func destinations(r *recorder, c *core.Call, out *core.Operand, index []core.Operand, wrap bool, skip int64, names []int64) (core.Memory, error) {
	n, k := index[0].Numel(), len(index)
	m, err := r.temp(4 * max(n, 1))
	if err != nil {
		return m, err
	}
	if k > maxIndices {
		return m, core.Errorf(core.NotImplemented, c.Op, "%d index tensors are more than a program binds, %d", k, maxIndices)
	}
	s := newShader(r, "destinations")
	to, count, first := s.wordsOf("dest", m), s.uint(n), s.uint(int(base(out)))
	var operands []*core.Operand
	var starts, sizes, steps []string
	for i := range index {
		operands = append(operands, &index[i])
		starts = append(starts, s.in("index"+itoa(i), &index[i], expr.I64, expr.Number))
		sizes, steps = append(sizes, s.uint(out.Shape[i])), append(steps, s.uint(out.Strides[i]))
	}
	names = slices.Clone(names)
	fault := s.faults(r, c, func(c *core.Call, at uint32) error {
		return outOfRange(c, at/8, int(names[at%8]), c.Outs[0].Shape[at%8])
	})
	s.flag(wrap)
	s.choose(k)
	skipWord := s.long(skip)
	skips := s.flag(skip >= 0)
	l := newLayout(index[0].Shape, operands...)
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return m, s.run(r, groupsFor(n), func() string {
		text := "  var dest_at = " + first + ";\n" + walk(rank, k, at, starts) + "  var ok = true;\n"
		for i := range k {
			n := itoa(i)
			text += checked("k"+n, "ld_index"+n+"(at_"+n+")", sizes[i], wrap) +
				"  if (!ok) { " + fault("(i * 8u + "+n+"u)") + " dest[" + to + " + i] = " + nowhere + "; return; }\n" +
				"  dest_at = dest_at + k" + n + " * " + steps[i] + ";\n"
		}
		if skips {
			text += "  if (all(raw_k0 == " + skipWord + ")) { dest_at = " + nowhere + "; }\n"
		}
		return each(count, text+"  dest["+to+" + i] = dest_at;\n")
	})
}

// putRows writes or combines rows of values where dest says. Of the rows that go to one place, the first takes them all,
// in their order; the last, where they are not combined. average divides by their number.
func putRows(r *recorder, dest core.Memory, n int, out, values *core.Operand, front, lead, mode int, average bool) error {
	rest := core.Numel(out.Shape[front:])
	if n == 0 || rest == 0 {
		return nil
	}
	s := newShader(r, "index_put")
	t := numbersOf(out.DType)
	from := s.wordsOf("dest", dest)
	s.both("y", out, t)
	value, first := "", "0u"
	if s.flag(values.IsNumber) {
		if t == expr.F32 {
			value = s.float(values.Number.Float)
		} else {
			value = s.long(values.Number.Int)
		}
	} else {
		first = s.in("v", values, t, expr.Number)
	}
	count, width := s.uint(n), s.uint(rest)
	s.choose(mode)
	s.flag(average)
	outRest := restOf(out, front)
	valueFront, valueRest := core.Operand{IsNumber: true}, core.Operand{IsNumber: true}
	frontShape := []int{n}
	if !values.IsNumber {
		valueFront, valueRest = frontOf(values, lead), restOf(values, lead)
		frontShape = valueFront.Shape
	}
	outer, inner := newLayout(frontShape, &valueFront), newLayout(outRest.Shape, &outRest, &valueRest)
	outerRank, innerRank := s.choose(len(outer.sizes)), s.choose(len(inner.sizes))
	outerAt, innerAt := s.loop(&outer), s.loop(&inner)
	return s.run(r, n, func() string {
		read := value
		if read == "" {
			read = "ld_v(value_row(o) + in_1)"
		}
		rows := "fn value_row(o: u32) -> u32 {\n" + walkAs("at_", "o", outerRank, 1, outerAt, []string{first}) + "  return at_0;\n}\n"
		text := "var<workgroup> found: atomic<u32>;\nvar<workgroup> total: atomic<u32>;\nvar<workgroup> list: array<u32, 256>;\n" + rows + fmt.Sprintf(entry, 64) + `
  if (group >= ` + count + `) { return; }
  let place = dest[` + from + ` + group];
  if (place == ` + nowhere + `) { return; }
`
		// The rows that go here, in order, as far as there is room for them.
		gathered := `
  for (var o = group + li; o < ` + count + `; o += 64u) {
    if (dest[` + from + ` + o] == place) { let e = atomicAdd(&total, 1u); if (e < 256u) { list[e] = o; } }
  }
  workgroupBarrier();
  let terms = atomicLoad(&total);
  if (li == 0u && terms <= 256u) {
    for (var e = 1u; e < terms; e++) {
      let o = list[e];
      var k = e;
      while (k > 0u && list[k - 1u] > o) { list[k] = list[k - 1u]; k = k - 1u; }
      list[k] = o;
    }
  }
  workgroupBarrier();
`
		begin, end := "0u", "group"
		if mode == assignMode {
			begin, end, gathered = "group + 1u", count, ""
		}
		text += `
  for (var o = ` + begin + ` + li; o < ` + end + `; o += 64u) { if (dest[` + from + ` + o] == place) { atomicStore(&found, 1u); } }
  workgroupBarrier();
  if (atomicLoad(&found) == 1u) { return; }
` + gathered + `
  for (var q = li; q < ` + width + `; q += 64u) {
` + walkAs("in_", "q", innerRank, 2, innerAt, []string{"place", "0u"})
		if mode == assignMode {
			return text + "    let o = group;\n    st_y(in_0, " + read + ");\n  }\n}\n"
		}
		divide := ""
		if average {
			divide = "    sum = sum / f32(terms);\n"
		}
		take := "let v = " + read + "; sum = " + combined(mode, t, "sum", "v") + ";"
		return text + `
    var sum = ld_y(in_0);
    if (terms <= 256u) {
      for (var e = 0u; e < terms; e++) { let o = list[e]; ` + take + ` }
    } else {
      for (var o = group; o < ` + count + `; o++) { if (dest[` + from + ` + o] == place) { ` + take + ` } }
    }
` + divide + "    st_y(in_0, sum);\n  }\n}\n"
	})
}

// indexPutCall, in place: Outs[0][Ins[1][b..], Ins[2][b..], .., r..] = Ins[0][b.., r..], or combined as Ints[1] says. With
// Ints[0], negative indices count from the end. The rest of Ints are the dimensions' names in messages. Ins[0] may be a
// number.
func indexPutCall(r *recorder, c *core.Call) error {
	out, index := &c.Outs[0], c.Ins[1:]
	n := index[0].Numel()
	if n == 0 {
		return nil
	}
	dest, err := destinations(r, c, out, index, c.Ints[0] != 0, -1, c.Ints[2:])
	if err != nil {
		return err
	}
	return putRows(r, dest, n, out, &c.Ins[0], len(index), len(index[0].Shape), int(c.Ints[1]), false)
}

// embeddingBackwardCall: Outs[0][v, :] = the sum of Ins[0][b.., :] over all b with Ins[1][b..] == v; zero for v == Ints[0].
// With Ints[1], divided by the number of terms.
func embeddingBackwardCall(r *recorder, c *core.Call) error {
	out := &c.Outs[0]
	zero := core.Call{Op: c.Op, Outs: []core.Operand{*out}, Ins: []core.Operand{{IsNumber: true}}}
	if err := copyCall(r, &zero); err != nil {
		return err
	}
	n := c.Ins[1].Numel()
	if n == 0 {
		return nil
	}
	dest, err := destinations(r, c, out, c.Ins[1:2], false, c.Ints[0], []int64{0})
	if err != nil {
		return err
	}
	return putRows(r, dest, n, out, &c.Ins[0], 1, len(c.Ins[1].Shape), addMode, c.Ints[1] != 0)
}
