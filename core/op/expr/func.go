package expr

import "math"

// A Func is a function or operator of the language.
type Func struct {
	Name   string // in programs and in kernels
	Op     string // the op that computes it on tensors
	Domain Domain
	args   []Kind
	result Kind
	symbol string // of an operator
	level  int    // of an operator: how tightly it binds
	vmath  bool   // its C function is plait_vmath.h's
	far    string // of a C function that has a faster one for near arguments: the test of those that are not
	nearIn []Type // where that one is there
	wide   bool   // its C function for float64 has no branches, as that for float32
	float  func(a []float64) float64
	int    func(a []int64) int64
}

// Arity returns the number of arguments.
func (f *Func) Arity() int { return len(f.args) }

// Arg returns the kind of argument i.
func (f *Func) Arg(i int) Kind { return f.args[i] }

// Result returns the kind of the result.
func (f *Func) Result() Kind { return f.result }

// Float evaluates the function over floats; truth values are 0 and 1.
func (f *Func) Float(args ...float64) float64 { return f.float(args) }

// Int evaluates the function over wrapping 64-bit integers; truth values are 0 and 1.
func (f *Func) Int(args ...int64) int64 { return f.int(args) }

// Lookup returns the function of that name, or nil.
func Lookup(name string) *Func { return byName[name] }

// Functions returns every function and operator.
func Functions() []*Func { return table }

var (
	byName = map[string]*Func{}
	infix  = map[string]*Func{}
	prefix = map[string]*Func{}
)

func init() {
	for _, f := range table {
		byName[f.Name] = f
		switch {
		case f.symbol == "":
		case len(f.args) == 1:
			prefix[f.symbol] = f
		default:
			infix[f.symbol] = f
		}
	}
}

const (
	levelUnary = 7
	levelAtom  = 9
)

func kinds(k Kind, n int) []Kind {
	s := make([]Kind, n)
	for i := range s {
		s[i] = k
	}
	return s
}

func arithmetic(name, symbol string, level int, d Domain, f func(a, b float64) float64, i func(a, b int64) int64) *Func {
	return &Func{Name: name, Op: name, Domain: d, args: kinds(Number, 2), symbol: symbol, level: level, float: f2(f), int: i2(i)}
}

func comparison(name, symbol string, level int, f func(a, b float64) bool, i func(a, b int64) bool) *Func {
	return &Func{Name: name, Op: name, Domain: Both, args: kinds(Number, 2), result: Logic, symbol: symbol, level: level,
		float: func(a []float64) float64 { return truth(f(a[0], a[1])) },
		int:   func(a []int64) int64 { return int64(truth(i(a[0], a[1]))) }}
}

func logic(name, op, symbol string, level, arity int, f func(a []float64) bool, i func(a []int64) bool) *Func {
	return &Func{Name: name, Op: op, Domain: Both, args: kinds(Logic, arity), result: Logic, symbol: symbol, level: level,
		float: func(a []float64) float64 { return truth(f(a)) },
		int:   func(a []int64) int64 { return int64(truth(i(a))) }}
}

func both(name, op string, arity int, f func(a []float64) float64, i func(a []int64) int64) *Func {
	return &Func{Name: name, Op: op, Domain: Both, args: kinds(Number, arity), float: f, int: i}
}

// quotient is a function of two numbers whose float versions are plait_vmath.h's.
func quotient(name string, f func(a, b float64) float64, i func(a, b int64) int64) *Func {
	return &Func{Name: name, Op: name, Domain: Both, args: kinds(Number, 2), vmath: true, float: f2(f), int: i2(i)}
}

// near gives f, whose C function has a faster one for near arguments in the given types, the test of those that are not.
func near(far string, f *Func, types ...Type) *Func {
	f.far, f.nearIn = far, types
	return f
}

func ints(name, op string, i func(a []int64) int64, arity int) *Func {
	return &Func{Name: name, Op: op, Domain: Ints, args: kinds(Number, arity), int: i}
}

func floats(name string, arity int, f func(a []float64) float64) *Func {
	return &Func{Name: name, Op: name, Domain: Floats, args: kinds(Number, arity), float: f}
}

func vector(name string, f func(float64) float64) *Func {
	return &Func{Name: name, Op: name, Domain: Floats, args: kinds(Number, 1), vmath: true, float: f1(f)}
}

func vector2(name string, f func(a, b float64) float64) *Func {
	return &Func{Name: name, Op: name, Domain: Floats, args: kinds(Number, 2), vmath: true, float: f2(f)}
}

// wide gives f, whose C function for float64 has no branches, as that for float32.
func wide(f *Func) *Func {
	f.wide = true
	return f
}

func test(name string, f func(float64) bool) *Func {
	return &Func{Name: name, Op: name, Domain: Floats, args: kinds(Number, 1), result: Logic,
		float: func(a []float64) float64 { return truth(f(a[0])) }}
}

func f1(f func(float64) float64) func([]float64) float64 {
	return func(a []float64) float64 { return f(a[0]) }
}

func f2(f func(a, b float64) float64) func([]float64) float64 {
	return func(a []float64) float64 { return f(a[0], a[1]) }
}

func i1(f func(int64) int64) func([]int64) int64 {
	return func(a []int64) int64 { return f(a[0]) }
}

func i2(f func(a, b int64) int64) func([]int64) int64 {
	return func(a []int64) int64 { return f(a[0], a[1]) }
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// The functions. What each computes is stated where a reader may doubt it: in scalar.go.
var table = []*Func{
	logic("or", "logical_or", "||", 1, 2,
		func(a []float64) bool { return a[0] != 0 || a[1] != 0 }, func(a []int64) bool { return a[0] != 0 || a[1] != 0 }),
	logic("and", "logical_and", "&&", 2, 2,
		func(a []float64) bool { return a[0] != 0 && a[1] != 0 }, func(a []int64) bool { return a[0] != 0 && a[1] != 0 }),
	comparison("eq", "==", 3, func(a, b float64) bool { return a == b }, func(a, b int64) bool { return a == b }),
	comparison("ne", "!=", 3, func(a, b float64) bool { return a != b }, func(a, b int64) bool { return a != b }),
	comparison("lt", "<", 4, func(a, b float64) bool { return a < b }, func(a, b int64) bool { return a < b }),
	comparison("le", "<=", 4, func(a, b float64) bool { return a <= b }, func(a, b int64) bool { return a <= b }),
	comparison("gt", ">", 4, func(a, b float64) bool { return a > b }, func(a, b int64) bool { return a > b }),
	comparison("ge", ">=", 4, func(a, b float64) bool { return a >= b }, func(a, b int64) bool { return a >= b }),
	arithmetic("add", "+", 5, Both, func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }),
	arithmetic("sub", "-", 5, Both, func(a, b float64) float64 { return a - b }, func(a, b int64) int64 { return a - b }),
	arithmetic("mul", "*", 6, Both, func(a, b float64) float64 { return a * b }, func(a, b int64) int64 { return a * b }),
	arithmetic("div", "/", 6, Floats, func(a, b float64) float64 { return a / b }, nil),
	{Name: "neg", Op: "neg", Domain: Both, args: kinds(Number, 1), symbol: "-", level: levelUnary,
		float: func(a []float64) float64 { return -a[0] }, int: func(a []int64) int64 { return -a[0] }},
	logic("not", "logical_not", "!", levelUnary, 1,
		func(a []float64) bool { return a[0] == 0 }, func(a []int64) bool { return a[0] == 0 }),

	{Name: "where", Op: "where", Domain: Both, args: []Kind{Logic, Number, Number},
		float: func(a []float64) float64 { return choose(a[0] != 0, a[1], a[2]) },
		int:   func(a []int64) int64 { return choose(a[0] != 0, a[1], a[2]) }},

	both("abs", "abs", 1, f1(math.Abs), i1(absInt)),
	both("sign", "sgn", 1, f1(signFloat), i1(signInt)),
	both("min", "minimum", 2, f2(minFloat), i2(func(a, b int64) int64 { return min(a, b) })),
	both("max", "maximum", 2, f2(maxFloat), i2(func(a, b int64) int64 { return max(a, b) })),
	near("quotient", quotient("fmod", math.Mod, fmodInt), F32),
	near("quotient", quotient("remainder", remainderFloat, remainderInt), F32),
	near("quotient", quotient("floor_divide", floorDivideFloat, floorDivideInt), F32),
	wide(near("pow", quotient("pow", math.Pow, powInt), F32)),

	ints("trunc_divide", "trunc_divide", i2(truncDivideInt), 2),
	ints("bit_and", "bitwise_and", i2(func(a, b int64) int64 { return a & b }), 2),
	ints("bit_or", "bitwise_or", i2(func(a, b int64) int64 { return a | b }), 2),
	ints("bit_xor", "bitwise_xor", i2(func(a, b int64) int64 { return a ^ b }), 2),
	ints("bit_not", "bitwise_not", i1(func(a int64) int64 { return ^a }), 1),
	ints("shl", "bitwise_left_shift", i2(shlInt), 2),
	ints("shr", "bitwise_right_shift", i2(shrInt), 2),
	ints("gcd", "gcd", i2(gcdInt), 2),

	floats("floor", 1, f1(math.Floor)),
	floats("ceil", 1, f1(math.Ceil)),
	floats("round", 1, f1(math.RoundToEven)),
	floats("trunc", 1, f1(math.Trunc)),
	floats("sqrt", 1, f1(math.Sqrt)),
	floats("rsqrt", 1, f1(func(x float64) float64 { return 1 / math.Sqrt(x) })),
	floats("copysign", 2, f2(math.Copysign)),
	floats("hypot", 2, f2(math.Hypot)),
	near("zeta", floats("zeta", 2, f2(zeta)), F32),
	test("isnan", math.IsNaN),
	test("isinf", func(x float64) bool { return math.IsInf(x, 0) }),

	wide(near("exp", vector("exp", math.Exp), F32, F64)),
	wide(near("exp2", vector("exp2", math.Exp2), F64)),
	wide(vector("expm1", math.Expm1)),
	wide(near("log", vector("log", math.Log), F64)),
	wide(near("log", vector("log2", math.Log2), F64)),
	wide(near("log", vector("log10", math.Log10), F64)),
	wide(vector("log1p", math.Log1p)),
	near("trig", vector("sin", math.Sin), F32, F64),
	near("trig", vector("cos", math.Cos), F32, F64),
	near("trig", vector("tan", math.Tan), F32, F64),
	wide(vector("asin", math.Asin)),
	wide(vector("acos", math.Acos)),
	wide(vector("atan", math.Atan)),
	wide(vector2("atan2", math.Atan2)),
	wide(vector("sinh", math.Sinh)),
	wide(vector("cosh", math.Cosh)),
	wide(vector("tanh", math.Tanh)),
	wide(vector("asinh", math.Asinh)),
	wide(vector("acosh", math.Acosh)),
	wide(vector("atanh", math.Atanh)),
	wide(vector("erf", math.Erf)),
	wide(vector("erfc", math.Erfc)),
	wide(vector("erfinv", math.Erfinv)),
	wide(vector("normal_cdf", func(x float64) float64 { return 0.5 * (1 + math.Erf(x*0.7071067811865476)) })),
	vector("lgamma", lgamma),
	vector("digamma", digamma),
	wide(vector("sigmoid", func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })),
}
