// Package reduction reduces over dimensions: a [Fold] says what is reduced, plan.go how the work is divided.
package reduction

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	for _, k := range []core.KernelID{contract.Sum, contract.Mean, contract.Prod, contract.Amax, contract.Amin, contract.Any, contract.All,
		contract.CountNonzero, contract.LogSumExp, contract.Var, contract.Std, contract.ArgMax, contract.ArgMin} {
		name := k.String()
		kernel.Register(k, func(r *shader.Recorder, c *core.Call) error { return reduceCall(r, c, name) })
	}
	kernel.Register(contract.Norm, func(r *shader.Recorder, c *core.Call) error {
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
func reduceCall(r *shader.Recorder, c *core.Call, name string) error {
	x := 0.0
	if len(c.Floats) > 0 {
		x = c.Floats[0]
	}
	in := &c.Ins[0]
	f, ok := Of(name, in.DType.IsFloat(), x)
	if !ok {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	outs := make([]*core.Operand, 0, 2)
	for i := range c.Outs {
		if c.Outs[i].Present() {
			outs = append(outs, &c.Outs[i])
		}
	}
	return f.Run(r, name, in, outs, c.Ints, x)
}

// Run reduces.
func (f *Fold) Run(r *shader.Recorder, name string, in *core.Operand, outs []*core.Operand, dims []int64, x float64) error {
	p := f.divide(r.GPU, in, outs, dims)
	if p.kept.Count == 0 {
		return nil
	}
	n, width, side := p.reduced.Count, p.width, p.side
	var states core.Memory
	if p.pieces > 1 {
		var err error
		if states, err = r.Temp(4 * f.words() * p.pieces * p.kept.Count); err != nil {
			return err
		}
	}
	s := shader.New(r, name)
	t := expr.F32
	if !in.DType.IsFloat() {
		t = expr.I64
	}
	from := s.In("x", in, t, f.kind)
	s.Bindings[0].Vec4 = s.Flag(p.vec4)
	kept, reduced, total := p.kept, p.reduced, n
	lanes := 1 // results of an invocation
	switch {
	case p.vec4 && width > 1 && side == 1:
		reduced, total = reduced.ByVec4(), n/4
	case p.vec4:
		kept, lanes = kept.ByVec4(), 4
	}
	totalWord, count, chunkWord, results, piecesWord := s.Uint(total), s.Uint(n), s.Uint(p.chunk), s.Uint(kept.Count), s.Uint(p.pieces)
	number := s.Float(x)
	var to, steps []string
	second := s.Flag(p.pieces > 1)
	s.Specialize(width / 64)
	s.Specialize(side)
	if second {
		to = []string{s.WordsOf("states", states)}
	} else {
		for i, o := range outs {
			to = append(to, s.Out("y"+strconv.Itoa(i), o, f.typeOf(i, t), f.kindOf(i)))
			if lanes > 1 {
				steps = append(steps, s.Uint(p.kept.Strides[1+i][len(kept.Sizes)-1]))
			}
		}
	}
	s.Specialize(len(kept.Sizes))
	s.Specialize(len(reduced.Sizes))
	keptAt, reducedAt := s.Loop(&kept), s.Loop(&reduced)
	unroll := s.Flag(p.chunk >= 8*width)
	ahead := 4 // loads that are on their way at a time
	if s.Flag(side > 1 && p.chunk >= 16*width) {
		ahead = 8
	}
	groups := kept.Count / side * p.pieces
	if width == 1 {
		groups = shader.GroupsFor(groups)
	}
	err := s.Run(r, groups, func() string {
		var b strings.Builder
		b.WriteString(f.functions(number, count))
		f.open(&b, width, side, lanes, results, piecesWord)
		b.WriteString(shader.WalkAs("at_", "row", len(kept.Sizes), 1+len(outs), keptAt, append([]string{from}, starts(to, len(outs), second)...)))
		fmt.Fprintf(&b, "  let first = piece * %s;\n  let last = min(first + %s, %s);\n", chunkWord, chunkWord, totalWord)
		for l := range lanes {
			fmt.Fprintf(&b, "  var a%d = zero();\n", l)
		}
		load, element := "ld_x(in_0)", shader.WalkAs("in_", "j", len(reduced.Sizes), 1, reducedAt, []string{"at_0"})
		if p.vec4 {
			load = "x[in_0 >> 2u]"
		}
		// add takes what was loaded for j.
		add := func(v, j string) {
			switch {
			case lanes > 1:
				for l := range lanes {
					fmt.Fprintf(&b, "    a%d = add(a%d, %s.%c, %s);\n", l, l, v, "xyzw"[l], j)
				}
			case p.vec4:
				for l := range 4 {
					fmt.Fprintf(&b, "    a0 = add(a0, %s.%c, (%s) * 4u + %du);\n", v, "xyzw"[l], j, l)
				}
			default:
				fmt.Fprintf(&b, "    a0 = add(a0, %s, %s);\n", v, j)
			}
		}
		b.WriteString("  var i0 = first + lane;\n")
		if unroll {
			fmt.Fprintf(&b, "  for (; i0 + %du < last; i0 += %du) {\n", (ahead-1)*width, ahead*width)
			for k := range ahead {
				fmt.Fprintf(&b, "    var v%d = %s;\n    {\n    let j = i0 + %du;\n%s    v%d = %s;\n    }\n", k, strings.Replace(load, "in_0", "0u", 1), k*width, element, k, load)
			}
			for k := range ahead {
				add(fmt.Sprint("v", k), fmt.Sprintf("i0 + %du", k*width))
			}
			b.WriteString("  }\n")
		}
		fmt.Fprintf(&b, "  for (; i0 < last; i0 += %du) {\n    let j = i0;\n%s    let v = %s;\n", width, element, load)
		add("v", "j")
		b.WriteString("  }\n")
		states := make([]string, lanes)
		for l := range states {
			states[l] = "a" + strconv.Itoa(l)
		}
		f.tree(&b, states, width, side)
		for l := range lanes {
			b.WriteString("  {\n  let a = a" + strconv.Itoa(l) + ";\n")
			if second {
				f.keep(&b, to[0], fmt.Sprintf("(piece * %s + row) * %du + %du", results, lanes, l))
			} else {
				f.finish(&b, func(i int) string {
					if lanes == 1 {
						return fmt.Sprintf("at_%d", i+1)
					}
					return fmt.Sprintf("at_%d + %du * %s", i+1, l, steps[i])
				}, len(outs))
			}
			b.WriteString("  }\n")
		}
		b.WriteString("}\n")
		return b.String()
	})
	if err != nil || p.pieces == 1 {
		return err
	}
	return f.joinStates(r, name, states, p.pieces, p.kept, outs, t, x, n)
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

// joinStates is the second pass. Many results are joined side by side, so that what neighbours read is in memory side by side.
func (f *Fold) joinStates(r *shader.Recorder, name string, states core.Memory, pieces int, kept shader.Loop, outs []*core.Operand, t expr.Type, x float64, n int) error {
	s := shader.New(r, name+" (join)")
	from := s.WordsOf("states", states)
	count, results, piecesWord := s.Uint(n), s.Uint(kept.Count), s.Uint(pieces)
	number := s.Float(x)
	var to []string
	for i, o := range outs {
		to = append(to, s.Out("y"+strconv.Itoa(i), o, f.typeOf(i, t), f.kindOf(i)))
	}
	if t == expr.F32 {
		s.Specialize(1)
	}
	s.Specialize(len(kept.Sizes))
	outer := shader.Loop{Sizes: kept.Sizes, Strides: kept.Strides[1:]}
	at := s.Loop(&outer)
	side := 1 // results of a workgroup
	if kept.Count >= 16 {
		side = 16
	}
	s.Specialize(side)
	return s.Run(r, shader.Ceil(kept.Count, side), func() string {
		const width = shader.Threads
		var b strings.Builder
		b.WriteString(f.functions(number, count))
		f.share(&b, width)
		fmt.Fprintf(&b, shader.Entry, width)
		fmt.Fprintf(&b, "  if (group * %du >= %s) { return; }\n  let lane = li / %du;\n  let row = min(group * %du + li %% %du, %s - 1u);\n", side, results, side, side, side, results)
		b.WriteString(shader.WalkAs("to_", "row", len(outer.Sizes), len(outs), at, to))
		fmt.Fprintf(&b, "  var a = zero();\n  for (var j = lane; j < %s; j += %du) {\n", piecesWord, width/side)
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
		f.tree(&b, []string{"a"}, width/side, side)
		fmt.Fprintf(&b, "  if (group * %du + li >= %s) { return; }\n", side, results)
		f.finish(&b, func(i int) string { return fmt.Sprintf("to_%d", i) }, len(outs))
		b.WriteString("}\n")
		return b.String()
	})
}

// open begins main: row is the result, piece the part of its elements and lane the invocation's place among the width that
// share them. A workgroup of more than one width has side results, or fours of them, beside one another.
func (f *Fold) open(b *strings.Builder, width, side, lanes int, results, pieces string) {
	if width == 1 {
		fmt.Fprintf(b, shader.Entry, shader.Threads)
		fmt.Fprintf(b, "  let i = group * %du + li;\n  if (i >= %s * %s) { return; }\n", shader.Threads, results, pieces)
		fmt.Fprintf(b, "  let row = i %% %s;\n  let piece = i / %s;\n  let lane = 0u;\n", results, results)
		return
	}
	f.share(b, width*side*lanes)
	fmt.Fprintf(b, shader.Entry, width*side)
	if side > 1 {
		fmt.Fprintf(b, "  if (group * %du >= %s) { return; }\n", side, results)
		fmt.Fprintf(b, "  let row = group * %[1]du + li %% %[1]du;\n  let piece = 0u;\n  let lane = li / %[1]du;\n", side)
		return
	}
	fmt.Fprintf(b, "  if (group >= %s * %s) { return; }\n", results, pieces)
	fmt.Fprintf(b, "  let row = group %% %s;\n  let piece = group / %s;\n  let lane = li;\n", results, results)
}

// share declares the workgroup memory that tree uses for so many states.
func (f *Fold) share(b *strings.Builder, states int) {
	for i, t := range f.fields {
		fmt.Fprintf(b, "var<workgroup> shared_%d: array<%s, %d>;\n", i, t, states)
	}
}

// tree joins the states of lanes in a workgroup, of which each lane has some under their names, and each of which is there for as many
// results as lie side by side; those of lane 0 have the whole.
func (f *Fold) tree(b *strings.Builder, states []string, lanes, side int) {
	if lanes == 1 {
		return
	}
	put := func() {
		for s, name := range states {
			for i := range f.fields {
				fmt.Fprintf(b, "  shared_%d[li + %du] = %s.f%d;\n", i, s*lanes*side, name, i)
			}
		}
	}
	put()
	b.WriteString("  workgroupBarrier();\n")
	for step := lanes / 2; step > 0; step /= 2 {
		fmt.Fprintf(b, "  if (lane < %du) {\n", step)
		for s, name := range states {
			var fields []string
			for i := range f.fields {
				fields = append(fields, fmt.Sprintf("shared_%d[li + %du]", i, s*lanes*side+step*side))
			}
			fmt.Fprintf(b, "  %[1]s = join(%[1]s, state(%[2]s));\n", name, strings.Join(fields, ", "))
		}
		put()
		b.WriteString("  }\n  workgroupBarrier();\n")
	}
	b.WriteString("  if (lane > 0u) { return; }\n")
}

// keep writes the state to memory for the second pass. place is its number there.
func (f *Fold) keep(b *strings.Builder, to, place string) {
	fmt.Fprintf(b, "  let slot = %s + (%s) * %du;\n", to, place, f.words())
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

// finish writes the results, each at its position.
func (f *Fold) finish(b *strings.Builder, position func(i int) string, outs int) {
	for i := range outs {
		fmt.Fprintf(b, "  st_y%d(%s, result_%d(a));\n", i, position(i), i)
	}
}
