package gpu

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

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
// in their order; the last, where they are not combined. With apart, they are added up, and average divides by their number, before
// the sum is added to what is there.
func putRows(r *recorder, dest core.Memory, n int, out, values *core.Operand, front, lead, mode int, apart, average bool) error {
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
	s.flag(apart)
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
		sum, finish := "ld_y(in_0)", ""
		if apart {
			sum, finish = "0.0", "    sum = ld_y(in_0) + sum;\n"
		}
		if average {
			finish = "    sum = sum / f32(terms);\n" + finish
		}
		take := "let v = " + read + "; sum = " + combined(mode, t, "sum", "v") + ";"
		return text + `
    var sum = ` + sum + `;
    if (terms <= 256u) {
      for (var e = 0u; e < terms; e++) { let o = list[e]; ` + take + ` }
    } else {
      for (var o = group; o < ` + count + `; o++) { if (dest[` + from + ` + o] == place) { ` + take + ` } }
    }
` + finish + "    st_y(in_0, sum);\n  }\n}\n"
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
	return putRows(r, dest, n, out, &c.Ins[0], len(index), len(index[0].Shape), int(c.Ints[1]), false, false)
}

// embeddingBackwardCall: Outs[0][v, :] = the sum of Ins[0][b.., :] over all b with Ins[1][b..] == v; zero for v == Ints[0].
// With Ints[1], divided by the number of terms. With Ints[2], added to what is in Outs[0].
func embeddingBackwardCall(r *recorder, c *core.Call) error {
	out := &c.Outs[0]
	if c.Ints[2] == 0 {
		zero := core.Call{Op: c.Op, Outs: []core.Operand{*out}, Ins: []core.Operand{{IsNumber: true}}}
		if err := copyCall(r, &zero); err != nil {
			return err
		}
	}
	n := c.Ins[1].Numel()
	if n == 0 {
		return nil
	}
	dest, err := destinations(r, c, out, c.Ins[1:2], false, c.Ints[0], []int64{0})
	if err != nil {
		return err
	}
	return putRows(r, dest, n, out, &c.Ins[0], 1, len(c.Ins[1].Shape), addMode, true, c.Ints[1] != 0)
}
