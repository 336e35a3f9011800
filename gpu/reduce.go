package gpu

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// A fold is a reduction: a state that takes elements, one by one, joins other states, and ends in a result. The state's
// fields are f32, u32 or vec2<u32>. In add, v is the element and j its number; a and b are states.
type fold struct {
	fields []string    // types
	zero   []string    // of nothing
	add    []string    // the fields after element v, of those of a
	join   []string    // the fields of a and b together
	before string      // statements before add
	within string      // statements before join
	result []string    // by output: of state a; count is the number of elements
	types  []expr.Type // of the results
	kinds  []expr.Kind
	kind   expr.Kind // of elements
}

var (
	sumFloat = fold{
		fields: []string{"f32"}, zero: []string{"0.0"}, add: []string{"a.f0 + v"}, join: []string{"a.f0 + b.f0"},
		result: []string{"a.f0"},
	}
	sumInt = fold{
		fields: []string{"vec2<u32>"}, zero: []string{"vec2<u32>(0u, 0u)"}, add: []string{"plait_add_i64(a.f0, v)"},
		join: []string{"plait_add_i64(a.f0, b.f0)"}, result: []string{"a.f0"},
	}
	// Deviations from a running mean (Welford), joined as Chan, Golub and LeVeque do.
	momentsFloat = fold{
		fields: []string{"f32", "f32", "f32"}, zero: []string{"0.0", "0.0", "0.0"},
		before: "let n = a.f0 + 1.0; let d = v - a.f1; let m = a.f1 + d / n;",
		add:    []string{"n", "m", "a.f2 + d * (v - m)"},
		within: "let n = a.f0 + b.f0; let d = b.f1 - a.f1; let w = select(b.f0 / n, 0.0, n == 0.0);",
		join:   []string{"n", "a.f1 + d * w", "a.f2 + b.f2 + d * d * a.f0 * w"},
	}
)

func extreme(compare string, start string) fold {
	take := func(v string) string {
		return fmt.Sprintf("select(a.f0, %s, %s %s a.f0 || plait_isnan_f32(%s))", v, v, compare, v)
	}
	return fold{fields: []string{"f32"}, zero: []string{start}, add: []string{take("v")}, join: []string{take("b.f0")}, result: []string{"a.f0"}}
}

func extremeInt(function, start string) fold {
	return fold{
		fields: []string{"vec2<u32>"}, zero: []string{start}, add: []string{function + "(a.f0, v)"},
		join: []string{function + "(a.f0, b.f0)"}, result: []string{"a.f0"},
	}
}

// counting folds count the elements that are true.
func counting(result string, t expr.Type, k expr.Kind) fold {
	return fold{
		fields: []string{"u32"}, zero: []string{"0u"}, add: []string{"a.f0 + select(0u, 1u, v)"}, join: []string{"a.f0 + b.f0"},
		result: []string{result}, types: []expr.Type{t}, kinds: []expr.Kind{k}, kind: expr.Logic,
	}
}

// choosing folds find the first extreme: its number and the value.
func choosing(better, value, zero string, float bool) fold {
	f := fold{fields: []string{value, "u32"}, zero: []string{zero, "0xffffffffu"}, types: []expr.Type{expr.I64, expr.F32}}
	nan := func(x string) string {
		if float {
			return "plait_isnan_f32(" + x + ")"
		}
		return "false"
	}
	same := func(x, y string) string {
		if float {
			return x + " == " + y
		}
		return "all(" + x + " == " + y + ")"
	}
	test := func(v, j string) string {
		return fmt.Sprintf("let t = %s != 0xffffffffu && (a.f1 == 0xffffffffu || (!%s && (%s || %s)) || (%s && %s < a.f1) || (%s && %s && %s < a.f1));",
			j, nan("a.f0"), strings.NewReplacer("$v", v, "$a", "a.f0").Replace(better), nan(v), same(v, "a.f0"), j, nan(v), nan("a.f0"), j)
	}
	f.before, f.within = test("v", "j"), test("b.f0", "b.f1")
	f.add = []string{"select(a.f0, v, t)", "select(a.f1, j, t)"}
	f.join = []string{"select(a.f0, b.f0, t)", "select(a.f1, b.f1, t)"}
	f.result = []string{"vec2<u32>(a.f1, 0u)", "a.f0"}
	if !float {
		f.types[1] = expr.I64
	}
	return f
}

const infinity, lowest64, highest64 = "bitcast<f32>(0x7f800000u)", "vec2<u32>(0u, 0x80000000u)", "vec2<u32>(0xffffffffu, 0x7fffffffu)"

// foldOf returns the reduction of a kernel's name for elements of float or integer dtype. x stands for the call's
// parameter.
func foldOf(name string, float bool, x float64) (fold, bool) {
	if float {
		switch name {
		case "sum":
			return sumFloat, true
		case "mean":
			f := sumFloat
			f.result = []string{"a.f0 / f32(count)"}
			return f, true
		case "prod":
			return fold{fields: []string{"f32"}, zero: []string{"1.0"}, add: []string{"a.f0 * v"}, join: []string{"a.f0 * b.f0"}, result: []string{"a.f0"}}, true
		case "amax":
			return extreme(">", "-"+infinity), true
		case "amin":
			return extreme("<", infinity), true
		case "sum_of_squares", "norm2":
			f := sumFloat
			f.add = []string{"a.f0 + v * v"}
			if name == "norm2" {
				f.result = []string{"sqrt(a.f0)"}
			}
			return f, true
		case "norm1":
			f := sumFloat
			f.add = []string{"a.f0 + abs(v)"}
			return f, true
		case "norm":
			f := sumFloat
			f.add = []string{"a.f0 + plait_pow_f32(abs(v), param)"}
			f.result = []string{"plait_pow_f32(a.f0, 1.0 / param)"}
			return f, true
		case "normmax", "normmin":
			f := extreme(">", "0.0")
			if name == "normmin" {
				f = extreme("<", infinity)
			}
			f.before = "let u = abs(v);"
			f.add = []string{strings.ReplaceAll(f.add[0], "v", "u")}
			return f, true
		case "norm0":
			return counting("f32(a.f0)", expr.F32, expr.Number), true
		case "var", "std":
			f := momentsFloat
			v := "select(a.f2 / max(a.f0 - param, 0.0), bitcast<f32>(0x7fc00000u), a.f0 == 0.0)"
			if name == "std" {
				v = "sqrt(" + v + ")"
			}
			f.result = []string{v, "select(a.f1, bitcast<f32>(0x7fc00000u), a.f0 == 0.0)"}
			return f, true
		case "logsumexp":
			return fold{
				fields: []string{"f32", "f32"}, zero: []string{"-" + infinity, "0.0"},
				before: "let m = select(a.f0, v, v > a.f0 || plait_isnan_f32(v)); let c = select(m, 0.0, plait_isinf_f32(m));",
				add:    []string{"m", "a.f1 * plait_exp_f32(a.f0 - c) + plait_exp_f32(v - c)"},
				within: "let m = select(a.f0, b.f0, b.f0 > a.f0 || plait_isnan_f32(b.f0)); let c = select(m, 0.0, plait_isinf_f32(m));",
				join:   []string{"m", "a.f1 * plait_exp_f32(a.f0 - c) + b.f1 * plait_exp_f32(b.f0 - c)"},
				result: []string{"select(plait_log_f32(a.f1) + select(a.f0, 0.0, plait_isinf_f32(a.f0)), a.f0, a.f0 == " + infinity + ")"},
			}, true
		case "argmax":
			return choosing("$v > $a", "f32", "0.0", true), true
		case "argmin":
			return choosing("$v < $a", "f32", "0.0", true), true
		}
	}
	switch name {
	case "any":
		return counting("a.f0 > 0u", expr.I64, expr.Logic), true
	case "all":
		return counting("a.f0 == count", expr.I64, expr.Logic), true
	case "count_nonzero":
		return counting("vec2<u32>(a.f0, 0u)", expr.I64, expr.Number), true
	case "sum":
		return sumInt, true
	case "prod":
		return fold{
			fields: []string{"vec2<u32>"}, zero: []string{"vec2<u32>(1u, 0u)"}, add: []string{"plait_mul_i64(a.f0, v)"},
			join: []string{"plait_mul_i64(a.f0, b.f0)"}, result: []string{"a.f0"},
		}, true
	case "mean":
		f := sumInt
		f.result, f.types = []string{"plait_f32_of_i64(a.f0) / f32(count)"}, []expr.Type{expr.F32}
		return f, true
	case "amax":
		return extremeInt("plait_max_i64", lowest64), true
	case "amin":
		return extremeInt("plait_min_i64", highest64), true
	case "argmax":
		return choosing("plait_lt_i64($a, $v)", "vec2<u32>", lowest64, false), true
	case "argmin":
		return choosing("plait_lt_i64($v, $a)", "vec2<u32>", highest64, false), true
	}
	return fold{}, false
}

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
	busy = 1 << 15
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
		fmt.Fprintf(&b, "  var a = zero();\n  for (var j = first + lane; j < last; j += %du) {\n", width)
		b.WriteString(walkAs("in_", "j", len(reduced.sizes), 1, reducedAt, []string{"at_0"}))
		b.WriteString("    a = add(a, ld_x(in_0), j);\n  }\n")
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

func (f *fold) typeOf(i int, t expr.Type) expr.Type {
	if i < len(f.types) {
		return f.types[i]
	}
	return t
}

func (f *fold) kindOf(i int) expr.Kind {
	if i < len(f.kinds) {
		return f.kinds[i]
	}
	return expr.Number
}

// words returns how many words of memory a state takes.
func (f *fold) words() int {
	n := 0
	for _, t := range f.fields {
		n++
		if t == "vec2<u32>" {
			n++
		}
	}
	return n
}

// functions returns the state and what is done with it.
func (f *fold) functions(number, count string) string {
	v := map[bool]string{true: "bool", false: "f32"}[f.kind == expr.Logic]
	if f.kind != expr.Logic && (f.fields[0] == "vec2<u32>") {
		v = "vec2<u32>"
	}
	var b strings.Builder
	b.WriteString("struct state {\n")
	for i, t := range f.fields {
		fmt.Fprintf(&b, "  f%d: %s,\n", i, t)
	}
	b.WriteString("}\n")
	list := func(values []string) string { return strings.Join(values, ", ") }
	scalars := fmt.Sprintf("let param = %s; ", number)
	fmt.Fprintf(&b, "fn zero() -> state { return state(%s); }\n", list(f.zero))
	fmt.Fprintf(&b, "fn add(a: state, v: %s, j: u32) -> state { %s%s return state(%s); }\n", v, scalars, f.before, list(f.add))
	fmt.Fprintf(&b, "fn join(a: state, b: state) -> state { %s return state(%s); }\n", f.within, list(f.join))
	for i, e := range f.result {
		t := wgslType(f.typeOf(i, resultType(f.fields[0])), f.kindOf(i))
		fmt.Fprintf(&b, "fn result_%d(a: state) -> %s { %slet count = %s; return %s; }\n", i, t, scalars, count, e)
	}
	return b.String()
}

func resultType(field string) expr.Type {
	if field == "vec2<u32>" {
		return expr.I64
	}
	return expr.F32
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
