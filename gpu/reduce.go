package gpu

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	for _, name := range []string{"sum", "mean", "prod", "amax", "amin", "any", "all", "count_nonzero", "sum_of_squares", "logsumexp", "var", "std", "argmax", "argmin"} {
		register(name, func(r *recorder, c *core.Call) error { return reduceCall(r, c, name) })
	}
	register("norm", func(r *recorder, c *core.Call) error {
		name := "norm"
		switch p := c.Floats[0]; {
		case p == 0:
			name = "norm0"
		case p == 1:
			name = "norm1"
		case p == 2:
			name = "norm2"
		case math.IsInf(p, 1):
			name = "normmax"
		case math.IsInf(p, -1):
			name = "normmin"
		}
		return reduceCall(r, c, name)
	})
}

// reduceCall reduces Ins[0] over the dimensions Ints. Outs[1], if there is one, is the second result.
func reduceCall(r *recorder, c *core.Call, name string) error {
	x := 0.0
	if len(c.Floats) > 0 {
		x = c.Floats[0]
	}
	in := &c.Ins[0]
	f, ok := foldOf(name, in.DType.IsFloat(), x)
	if !ok {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	outs := make([]*core.Operand, 0, 2)
	for i := range c.Outs {
		if c.Outs[i].Present() {
			outs = append(outs, &c.Outs[i])
		}
	}
	return f.run(r, name, in, outs, c.Ints, x)
}

// split returns the loops over the kept and the reduced dimensions of in. The strides of outs, which have the reduced
// dimensions left out or of size 1, follow those of in among the kept.
func split(in *core.Operand, outs []*core.Operand, dims []int64) (kept, reduced layout) {
	kept.strides, reduced.strides = make([][]int, 1+len(outs)), make([][]int, 1)
	kept.count, reduced.count = 1, 1
	steps := make([]int, 1+len(outs))
	at := 0
	for d, n := range in.Shape {
		if slices.Contains(dims, int64(d)) {
			reduced.count *= n
			reduced.push(n, in.Strides[d])
			if len(outs[0].Shape) == len(in.Shape) {
				at++
			}
			continue
		}
		steps[0] = in.Strides[d]
		for i, o := range outs {
			steps[1+i] = o.Strides[at]
		}
		at++
		kept.count *= n
		kept.push(n, steps...)
	}
	return kept, reduced
}

const (
	// longLoop is how many elements an invocation takes at most; lavapipe ends loops after 65535 rounds.
	longLoop = 4096
	// busy is how many invocations fill a GPU.
	busy = 1 << 17
)

// run reduces: each result by a workgroup where its elements are neighbours, or by one invocation where results are
// neighbours. Where there are too few results for that, pieces are reduced to states first and these then joined.
func (f *fold) run(r *recorder, name string, in *core.Operand, outs []*core.Operand, dims []int64, x float64) error {
	kept, reduced := split(in, outs, dims)
	if kept.count == 0 {
		return nil
	}
	n := reduced.count
	rows := n > 16 && len(reduced.sizes) > 0
	if rows && len(kept.sizes) > 0 {
		inner, across := kept.strides[0][len(kept.sizes)-1], reduced.strides[0][len(reduced.sizes)-1]
		rows = across <= inner || kept.count < 64
	}
	width := 1 // invocations for each result
	if rows {
		if width = 64; n > 512 {
			width = 256
		}
	}
	pieces := 1
	if each := n / width; each > 64 && kept.count*width < busy {
		pieces = min(max(busy/(kept.count*width), 1), each/32, 1024)
	}
	pieces = max(pieces, (n+longLoop*width-1)/(longLoop*width))
	chunk := (n + pieces - 1) / pieces
	var states core.Memory
	if pieces > 1 {
		var err error
		if states, err = r.temp(4 * f.words() * pieces * kept.count); err != nil {
			return err
		}
	}
	s := newShader(r, name)
	t := expr.F32
	if !in.DType.IsFloat() {
		t = expr.I64
	}
	from := s.in("x", in, t, f.kind)
	total, count, chunkWord, results, piecesWord := s.uint(n), s.uint(n), s.uint(chunk), s.uint(kept.count), s.uint(pieces)
	number := s.float(x)
	var to []string
	second := pieces > 1
	s.flag(second)
	s.choose(width / 64)
	if second {
		to = []string{s.wordsOf("states", states)}
	} else {
		for i, o := range outs {
			to = append(to, s.out("y"+itoa(i), o, f.typeOf(i, t), f.kindOf(i)))
		}
	}
	s.choose(len(kept.sizes))
	s.choose(len(reduced.sizes))
	keptAt, reducedAt := s.loop(&kept), s.loop(&reduced)
	unroll := s.flag(chunk >= 8*width)
	groups := kept.count * pieces
	if width == 1 {
		groups = groupsFor(groups)
	}
	err := s.run(r, groups, func() string {
		var b strings.Builder
		b.WriteString(f.functions(number, count))
		f.open(&b, width, results, piecesWord)
		b.WriteString(walkAs("at_", "row", len(kept.sizes), 1+len(outs), keptAt, append([]string{from}, starts(to, len(outs), second)...)))
		fmt.Fprintf(&b, "  let first = piece * %s;\n  let last = min(first + %s, %s);\n", chunkWord, chunkWord, total)
		element := walkAs("in_", "j", len(reduced.sizes), 1, reducedAt, []string{"at_0"})
		b.WriteString("  var a = zero();\n  var i0 = first + lane;\n")
		if unroll {
			// Four loads are on their way at a time.
			fmt.Fprintf(&b, "  for (; i0 + %du < last; i0 += %du) {\n", 3*width, 4*width)
			for k := range 4 {
				fmt.Fprintf(&b, "    var v%d = ld_x(0u);\n    {\n    let j = i0 + %du;\n%s    v%d = ld_x(in_0);\n    }\n", k, k*width, element, k)
			}
			for k := range 4 {
				fmt.Fprintf(&b, "    a = add(a, v%d, i0 + %du);\n", k, k*width)
			}
			b.WriteString("  }\n")
		}
		fmt.Fprintf(&b, "  for (; i0 < last; i0 += %du) {\n    let j = i0;\n%s    a = add(a, ld_x(in_0), j);\n  }\n", width, element)
		f.tree(&b, width)
		if second {
			f.keep(&b, to[0], results)
		} else {
			f.finish(&b, len(outs))
		}
		b.WriteString("}\n")
		return b.String()
	})
	if err != nil || pieces == 1 {
		return err
	}
	return f.joinStates(r, name, states, pieces, kept, outs, t, x, n)
}

// starts returns the first positions of the outputs, or zeros if states are kept instead.
func starts(to []string, n int, states bool) []string {
	if !states {
		return to
	}
	out := make([]string, n)
	for i := range out {
		out[i] = "0u"
	}
	return out
}

// joinStates is the second pass: one workgroup of 64 for each result.
func (f *fold) joinStates(r *recorder, name string, states core.Memory, pieces int, kept layout, outs []*core.Operand, t expr.Type, x float64, n int) error {
	s := newShader(r, name+" (join)")
	from := s.wordsOf("states", states)
	count, results, piecesWord := s.uint(n), s.uint(kept.count), s.uint(pieces)
	number := s.float(x)
	var to []string
	for i, o := range outs {
		to = append(to, s.out("y"+itoa(i), o, f.typeOf(i, t), f.kindOf(i)))
	}
	if t == expr.F32 {
		s.choose(1)
	}
	s.choose(len(kept.sizes))
	outer := layout{sizes: kept.sizes, strides: kept.strides[1:]}
	at := s.loop(&outer)
	return s.run(r, kept.count, func() string {
		var b strings.Builder
		b.WriteString(f.functions(number, count))
		f.open(&b, 64, results, "1u")
		b.WriteString(walkAs("to_", "row", len(outer.sizes), len(outs), at, to))
		for i := range outs {
			fmt.Fprintf(&b, "  let at_%d = to_%d;\n", i+1, i)
		}
		fmt.Fprintf(&b, "  var a = zero();\n  for (var j = lane; j < %s; j += 64u) {\n", piecesWord)
		fmt.Fprintf(&b, "    let slot = %s + (j * %s + row) * %du;\n    var b: state;\n", from, results, f.words())
		at := 0
		for i, t := range f.fields {
			switch t {
			case "f32":
				fmt.Fprintf(&b, "    b.f%d = bitcast<f32>(states[slot + %du]);\n", i, at)
			case "u32":
				fmt.Fprintf(&b, "    b.f%d = states[slot + %du];\n", i, at)
			default:
				fmt.Fprintf(&b, "    b.f%d = vec2<u32>(states[slot + %du], states[slot + %du]);\n", i, at, at+1)
				at++
			}
			at++
		}
		b.WriteString("    a = join(a, b);\n  }\n")
		f.tree(&b, 64)
		f.finish(&b, len(outs))
		b.WriteString("}\n")
		return b.String()
	})
}

// open begins main: row is the result, piece the part of its elements and lane the invocation's place among the width that
// share them.
func (f *fold) open(b *strings.Builder, width int, results, pieces string) {
	if width == 1 {
		fmt.Fprintf(b, entry, threads)
		fmt.Fprintf(b, "  let i = group * %du + li;\n  if (i >= %s * %s) { return; }\n", threads, results, pieces)
		fmt.Fprintf(b, "  let row = i %% %s;\n  let piece = i / %s;\n  let lane = 0u;\n", results, results)
		return
	}
	for i, t := range f.fields {
		fmt.Fprintf(b, "var<workgroup> shared_%d: array<%s, %d>;\n", i, t, width)
	}
	fmt.Fprintf(b, entry, width)
	fmt.Fprintf(b, "  if (group >= %s * %s) { return; }\n", results, pieces)
	fmt.Fprintf(b, "  let row = group %% %s;\n  let piece = group / %s;\n  let lane = li;\n", results, results)
}

// tree joins the states of a workgroup's invocations; the first has the whole.
func (f *fold) tree(b *strings.Builder, width int) {
	if width == 1 {
		return
	}
	put := func() {
		for i := range f.fields {
			fmt.Fprintf(b, "  shared_%d[lane] = a.f%d;\n", i, i)
		}
	}
	put()
	b.WriteString("  workgroupBarrier();\n")
	for step := width / 2; step > 0; step /= 2 {
		var fields []string
		for i := range f.fields {
			fields = append(fields, fmt.Sprintf("shared_%d[lane + %du]", i, step))
		}
		fmt.Fprintf(b, "  if (lane < %du) {\n  a = join(a, state(%s));\n", step, strings.Join(fields, ", "))
		put()
		b.WriteString("  }\n  workgroupBarrier();\n")
	}
	b.WriteString("  if (lane > 0u) { return; }\n")
}

// keep writes the state to memory for the second pass.
func (f *fold) keep(b *strings.Builder, to, results string) {
	fmt.Fprintf(b, "  let slot = %s + (piece * %s + row) * %du;\n", to, results, f.words())
	at := 0
	for i, t := range f.fields {
		switch t {
		case "f32":
			fmt.Fprintf(b, "  states[slot + %du] = bitcast<u32>(a.f%d);\n", at, i)
		case "u32":
			fmt.Fprintf(b, "  states[slot + %du] = a.f%d;\n", at, i)
		default:
			fmt.Fprintf(b, "  states[slot + %du] = a.f%d.x;\n  states[slot + %du] = a.f%d.y;\n", at, i, at+1, i)
			at++
		}
		at++
	}
}

// finish writes the results.
func (f *fold) finish(b *strings.Builder, outs int) {
	for i := range outs {
		fmt.Fprintf(b, "  st_y%d(at_%d, result_%d(a));\n", i, i+1, i)
	}
}
