package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Sorting by counting: an element's place is the number of those that come before it. That takes the square of a line's
// length, and lines longer than this are refused.
const longestSorted = 1 << 16

func init() {
	register("sort", func(r *recorder, c *core.Call) error {
		return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], largest: c.Ints[1] != 0}).run(r, c)
	})
	register("argsort", func(r *recorder, c *core.Call) error {
		return (&sorting{indices: &c.Outs[0], largest: c.Ints[1] != 0}).run(r, c)
	})
	register("topk", func(r *recorder, c *core.Call) error {
		return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], largest: c.Ints[2] != 0, first: int(c.Ints[1])}).run(r, c)
	})
	register("kthvalue", func(r *recorder, c *core.Call) error {
		return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], one: "rank == " + "kth - 1u", kth: int(c.Ints[1])}).run(r, c)
	})
	register("median", func(r *recorder, c *core.Call) error {
		// A line with a NaN has the first of them as its median.
		return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], one: "rank == select((n - 1u) / 2u, n - nans, nans > 0u)"}).run(r, c)
	})
	register("nanmedian", func(r *recorder, c *core.Call) error {
		return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], one: "rank == select((n - nans - 1u) / 2u, 0u, nans == n)"}).run(r, c)
	})
	register("searchsorted", searchSortedCall)
}

// A sorting puts the elements of lines of Ins[0] along dimension Ints[0] where their rank says: all of them, the first so
// many, or the one for which a condition in WGSL holds.
type sorting struct {
	values, indices *core.Operand
	largest         bool // first
	first           int  // how many; 0 for all
	one             string
	kth             int
}

// keyText is the function that gives numbers keys whose order as pairs of words is theirs, a NaN the largest.
func keyText(t expr.Type) string {
	if t == expr.I64 {
		return "fn key(v: vec2<u32>) -> vec2<u32> { return vec2<u32>(v.x, v.y ^ 0x80000000u); }\n"
	}
	return `fn key(v: f32) -> vec2<u32> {
  if (plait_isnan_f32(v)) { return vec2<u32>(0u, 0xffffffffu); }
  let b = bitcast<u32>(select(v, 0.0, v == 0.0));
  return vec2<u32>(0u, b ^ select(0x80000000u, 0xffffffffu, (b >> 31u) == 1u));
}
` + before
}

const before = "fn before(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }\n"

func (o *sorting) run(r *recorder, c *core.Call) error {
	in, dim := &c.Ins[0], int(c.Ints[0])
	n, step := stepOf(in, dim)
	if in.Numel() == 0 || o.indices.Numel() == 0 {
		return nil
	}
	if n > longestSorted {
		return core.Errorf(core.NotImplemented, c.Op, "%v sorts at most %d elements of a dimension, got %d", r.device, longestSorted, n)
	}
	// The outputs with the dimension taken out or along the elements' rank.
	outs := []*core.Operand{o.indices}
	if o.values != nil {
		outs = append(outs, o.values)
	}
	operands := []*core.Operand{in}
	outStep := 0
	for _, out := range outs {
		aligned := *out
		if len(out.Shape) == len(in.Shape) {
			_, outStep = stepOf(out, dim)
		} else {
			aligned.Shape, aligned.Strides = in.Shape, append(append(append([]int{}, out.Strides[:dim]...), 0), out.Strides[dim:]...)
		}
		operands = append(operands, &aligned)
	}
	l := lines(dim, operands...)
	t := numbersOf(in.DType)
	s := newShader(r, "sort")
	starts := []string{s.in("x", in, t, expr.Number), s.out("index", o.indices, expr.I64, expr.Number)}
	if s.flag(o.values != nil) {
		starts = append(starts, s.out("value", o.values, t, expr.Number))
	}
	count, size, stepWord, outWord, first, kth := s.uint(in.Numel()), s.uint(n), s.uint(step), s.uint(outStep), s.uint(o.first), s.uint(o.kth)
	s.flag(o.largest)
	s.flag(o.first > 0)
	s.key.name += " " + o.one
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return s.run(r, groupsFor(in.Numel()), func() string {
		less := "before(other, mine)"
		if o.largest {
			less = "before(mine, other)"
		}
		head := keyText(t)
		if t == expr.I64 {
			head += before
		}
		text := "  let n = " + size + ";\n  let own = i % n;\n  let kth = " + kth + ";\n" + walkAs("at_", "i / n", rank, len(operands), at, starts) +
			"  let v = ld_x(at_0 + own * " + stepWord + ");\n  let mine = key(v);\n  var rank = 0u;\n  var nans = 0u;\n" +
			"  for (var j = 0u; j < n; j++) {\n    let other = key(ld_x(at_0 + j * " + stepWord + "));\n" +
			"    if (" + less + " || (all(other == mine) && j < own)) { rank = rank + 1u; }\n" +
			"    if (other.x == 0u && other.y == 0xffffffffu) { nans = nans + 1u; }\n  }\n"
		place := " + rank * " + outWord
		switch {
		case o.one != "":
			text += "  if (!(" + o.one + ")) { return; }\n"
			place = ""
		case o.first > 0:
			text += "  if (rank >= " + first + ") { return; }\n"
		}
		text += "  st_index(at_1" + place + ", vec2<u32>(own, 0u));\n"
		if o.values != nil {
			text += "  st_value(at_2" + place + ", v);\n"
		}
		return head + each(count, text)
	})
}

// searchSortedCall: Outs[0] = the places at which Ins[1] would be inserted in the lines of Ins[0], which are sorted, or in the
// order that Ins[2] says; after equal elements if Ints[0].
func searchSortedCall(r *recorder, c *core.Call) error {
	in, values, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	n := 1
	if len(in.Shape) > 0 {
		n = in.Shape[len(in.Shape)-1]
	}
	each1 := 1 // values of each line
	if len(in.Shape) > 1 {
		each1 = values.Shape[len(values.Shape)-1]
	} else {
		each1 = max(values.Numel(), 1)
	}
	s := newShader(r, "searchsorted")
	t := numbersOf(in.DType)
	if values.DType.IsFloat() {
		t = expr.F32
	}
	x, v, y := s.in("x", in, t, expr.Number), s.in("v", values, t, expr.Number), s.out("y", out, expr.I64, expr.Number)
	sorter := ""
	if s.flag(len(c.Ins) > 2 && c.Ins[2].Present()) {
		sorter = s.in("order", &c.Ins[2], expr.I64, expr.Number)
	}
	right := s.flag(c.Ints[0] != 0)
	if !in.Contiguous() || !values.Contiguous() || !out.Contiguous() {
		return core.Errorf(core.NotImplemented, c.Op, "%v searches contiguous tensors alone", r.device)
	}
	count, size, per := s.uint(out.Numel()), s.uint(n), s.uint(each1)
	return s.run(r, groupsFor(out.Numel()), func() string {
		element := "ld_x(" + x + " + line + middle)"
		if sorter != "" {
			element = "ld_x(" + x + " + line + ld_order(" + sorter + " + line + middle).x)"
		}
		test := "before(key(e), mine)"
		if right {
			test = "!before(mine, key(e))"
		}
		head := keyText(t)
		if t == expr.I64 {
			head += before
		}
		return head + each(count, "  let line = (i / "+per+") * "+size+";\n  let mine = key(ld_v("+v+" + i));\n  var low = 0u;\n  var high = "+size+";\n"+
			"  for (var k = 0u; k < 32u && low < high; k++) {\n    let middle = (low + high) / 2u;\n    let e = "+element+";\n"+
			"    if ("+test+") { low = middle + 1u; } else { high = middle; }\n  }\n  st_y("+y+" + i, vec2<u32>(low, 0u));\n")
	})
}
