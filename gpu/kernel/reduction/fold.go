package reduction

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A Fold is a reduction: a state that elements are added to, that can be combined with other states, and that gives results. Its fields
// have the types real, u32 or pair. In add, v is the element and j its index; a and b are states.
type Fold struct {
	fields     []string    // types of the state's fields
	zero       []string    // fields of the empty state
	add        []string    // fields of state a after element v was added
	join       []string    // fields of the combination of a and b
	before     string      // statements before add
	beforeJoin string      // statements before join
	Result     []string    // results of state a; count is the number of elements
	types      []expr.Type // types of the results
	kinds      []expr.Kind
	kind       expr.Kind // kind of the elements
}

var (
	sumFloat = Fold{
		fields: []string{shader.Real}, zero: []string{"0.0"}, add: []string{"a.f0 + v"}, join: []string{"a.f0 + b.f0"},
		Result: []string{"a.f0"},
	}
	sumInt = Fold{
		fields: []string{shader.Pair}, zero: []string{"pair(0u, 0u)"}, add: []string{"plait_add_i64(a.f0, v)"},
		join: []string{"plait_add_i64(a.f0, b.f0)"}, Result: []string{"a.f0"},
	}
	// Sums of squared deviations from a running mean (Welford), combined by the formula of Chan, Golub and LeVeque. If the difference of
	// the means is infinite or NaN, the mean is a weighted sum instead, so that an infinite mean stays infinite.
	momentsFloat = Fold{
		fields: []string{shader.Real, shader.Real, shader.Real}, zero: []string{"0.0", "0.0", "0.0"},
		before:     "let n = a.f0 + 1.0; let d = v - a.f1; let w = 1.0 / n; " + mergedMean("v"),
		add:        []string{"n", "m", "a.f2 + d * (v - m)"},
		beforeJoin: "let n = a.f0 + b.f0; let d = b.f1 - a.f1; let w = select(b.f0 / n, 0.0, n == 0.0); " + mergedMean("b.f1"),
		join:       []string{"n", "m", "a.f2 + b.f2 + d * d * a.f0 * w"},
	}
)

// mergedMean returns a statement that defines m, the mean of a state combined with more. d is the difference of the means and w the weight
// of more.
func mergedMean(more string) string {
	return "let m = select(a.f1 + d * w, a.f1 * (1.0 - w) + " + more + " * w, plait_unbounded(d));"
}

func extreme(compare string, start string) Fold {
	take := func(v string) string {
		return fmt.Sprintf("select(a.f0, %s, %s %s a.f0 || plait_isnan_f32(%s))", v, v, compare, v)
	}
	return Fold{fields: []string{shader.Real}, zero: []string{start}, add: []string{take("v")}, join: []string{take("b.f0")}, Result: []string{"a.f0"}}
}

func extremeInt(function, start string) Fold {
	return Fold{
		fields: []string{shader.Pair}, zero: []string{start}, add: []string{function + "(a.f0, v)"},
		join: []string{function + "(a.f0, b.f0)"}, Result: []string{"a.f0"},
	}
}

// Count returns the fold that counts the elements that are true.
func Count(result string, t expr.Type, k expr.Kind) Fold {
	return Fold{
		fields: []string{"u32"}, zero: []string{"0u"}, add: []string{"a.f0 + select(0u, 1u, v)"}, join: []string{"a.f0 + b.f0"},
		Result: []string{result}, types: []expr.Type{t}, kinds: []expr.Kind{k}, kind: expr.Logic,
	}
}

// argExtreme returns the fold that finds the first maximum or minimum: its index and its value.
func argExtreme(better, value, zero string, float bool) Fold {
	f := Fold{fields: []string{value, "u32"}, zero: []string{zero, "0xffffffffu"}, types: []expr.Type{expr.I64, expr.F32}}
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
	f.before, f.beforeJoin = test("v", "j"), test("b.f0", "b.f1")
	f.add = []string{"select(a.f0, v, t)", "select(a.f1, j, t)"}
	f.join = []string{"select(a.f0, b.f0, t)", "select(a.f1, b.f1, t)"}
	f.Result = []string{"pair(a.f1, 0u)", "a.f0"}
	if !float {
		f.types[1] = expr.I64
	}
	return f
}

// Of returns the fold of a kernel by its name, for float or integer elements. x is the call's parameter.
func Of(name string, float bool, x float64) (Fold, bool) {
	if float {
		switch name {
		case "sum":
			return sumFloat, true
		case "nansum":
			f := sumFloat
			f.add = []string{"a.f0 + select(v, real(0.0), plait_isnan_f32(v))"}
			return f, true
		case "mean":
			f := sumFloat
			f.Result = []string{"a.f0 / real(count)"}
			return f, true
		case "prod":
			return Fold{fields: []string{shader.Real}, zero: []string{"1.0"}, add: []string{"a.f0 * v"}, join: []string{"a.f0 * b.f0"}, Result: []string{"a.f0"}}, true
		case "amax":
			return extreme(">", "-"+shader.Infinity), true
		case "amin":
			return extreme("<", shader.Infinity), true
		case "sum_of_squares", "norm2":
			f := sumFloat
			f.add = []string{"a.f0 + v * v"}
			if name == "norm2" {
				f.Result = []string{"sqrt(a.f0)"}
			}
			return f, true
		case "norm1":
			f := sumFloat
			f.add = []string{"a.f0 + abs(v)"}
			return f, true
		case "norm":
			f := sumFloat
			f.add = []string{"a.f0 + plait_pow_f32(abs(v), param)"}
			f.Result = []string{"plait_pow_f32(a.f0, 1.0 / param)"}
			return f, true
		case "normmax", "normmin":
			f := extreme(">", "0.0")
			if name == "normmin" {
				f = extreme("<", shader.Infinity)
			}
			f.before = "let u = abs(v);"
			f.add = []string{strings.ReplaceAll(f.add[0], "v", "u")}
			return f, true
		case "norm0":
			return Count("real(a.f0)", expr.F32, expr.Number), true
		case "var", "std":
			f := momentsFloat
			v := "select(a.f2 / max(a.f0 - param, 0.0), plait_nan(), a.f0 == 0.0)"
			if name == "std" {
				v = "sqrt(" + v + ")"
			}
			f.Result = []string{v, "select(a.f1, plait_nan(), a.f0 == 0.0)"}
			return f, true
		case "logsumexp":
			return Fold{
				fields: []string{shader.Real, shader.Real}, zero: []string{"-" + shader.Infinity, "0.0"},
				before:     "let m = select(a.f0, v, v > a.f0 || plait_isnan_f32(v)); let c = select(m, 0.0, plait_isinf_f32(m));",
				add:        []string{"m", "a.f1 * plait_exp_f32(a.f0 - c) + plait_exp_f32(v - c)"},
				beforeJoin: "let m = select(a.f0, b.f0, b.f0 > a.f0 || plait_isnan_f32(b.f0)); let c = select(m, 0.0, plait_isinf_f32(m));",
				join:       []string{"m", "a.f1 * plait_exp_f32(a.f0 - c) + b.f1 * plait_exp_f32(b.f0 - c)"},
				Result:     []string{"select(plait_log_f32(a.f1) + select(a.f0, 0.0, plait_isinf_f32(a.f0)), a.f0, a.f0 == " + shader.Infinity + ")"},
			}, true
		case "argmax":
			return argExtreme("$v > $a", shader.Real, "0.0", true), true
		case "argmin":
			return argExtreme("$v < $a", shader.Real, "0.0", true), true
		}
	}
	switch name {
	case "any":
		return Count("a.f0 > 0u", expr.I64, expr.Logic), true
	case "all":
		return Count("a.f0 == count", expr.I64, expr.Logic), true
	case "count_nonzero":
		return Count("pair(a.f0, 0u)", expr.I64, expr.Number), true
	case "sum":
		return sumInt, true
	case "prod":
		return Fold{
			fields: []string{shader.Pair}, zero: []string{"pair(1u, 0u)"}, add: []string{"plait_mul_i64(a.f0, v)"},
			join: []string{"plait_mul_i64(a.f0, b.f0)"}, Result: []string{"a.f0"},
		}, true
	case "mean":
		f := sumInt
		f.Result, f.types = []string{"plait_f32_of_i64(a.f0) / real(count)"}, []expr.Type{expr.F32}
		return f, true
	case "amax":
		return extremeInt("plait_max_i64", shader.Lowest64), true
	case "amin":
		return extremeInt("plait_min_i64", shader.Highest64), true
	case "argmax":
		return argExtreme("plait_lt_i64($a, $v)", shader.Pair, shader.Lowest64, false), true
	case "argmin":
		return argExtreme("plait_lt_i64($v, $a)", shader.Pair, shader.Highest64, false), true
	}
	return Fold{}, false
}

func (f *Fold) typeOf(i int, t expr.Type) expr.Type {
	if i < len(f.types) {
		return f.types[i]
	}
	return t
}

func (f *Fold) kindOf(i int) expr.Kind {
	if i < len(f.kinds) {
		return f.kinds[i]
	}
	return expr.Number
}

// words returns how many words of memory a state takes. With double, it is one of a program that computes in float64.
func (f *Fold) words(double bool) int {
	n := 0
	for _, t := range f.fields {
		n += fieldWords(t, double)
	}
	return n
}

// fieldWords returns how many words of memory a field takes.
func fieldWords(t string, double bool) int {
	if t == shader.Pair || t == shader.Real && double {
		return 2
	}
	return 1
}

// functions declares the state and its functions.
func (f *Fold) functions(w *shader.Text, number, count string) {
	v := map[bool]string{true: "bool", false: shader.Real}[f.kind == expr.Logic]
	if f.kind != expr.Logic && f.fields[0] == shader.Pair {
		v = shader.Pair
	}
	var fields []string
	for i, t := range f.fields {
		fields = append(fields, fmt.Sprintf("f%d: %s", i, t))
	}
	w.Struct("state", fields...)
	list := func(values []string) string { return strings.Join(values, ", ") }
	scalars := fmt.Sprintf("let param = %s;", number)
	w.Func("zero() -> state", "return state(%s);", list(f.zero))
	w.Func("add(a: state, v: "+v+", j: u32) -> state", "%s %s return state(%s);", scalars, f.before, list(f.add))
	w.Func("join(a: state, b: state) -> state", "%s return state(%s);", f.beforeJoin, list(f.join))
	for i, e := range f.Result {
		t := shader.TypeName(f.typeOf(i, resultType(f.fields[0])), f.kindOf(i))
		w.Func(fmt.Sprintf("result_%d(a: state) -> %s", i, t), "%s let count = %s; return %s;", scalars, count, e)
	}
}

func resultType(field string) expr.Type {
	if field == shader.Pair {
		return expr.I64
	}
	return expr.F32
}
