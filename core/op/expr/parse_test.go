package expr

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var testScope = map[string]Kind{"x": Number, "y": Number, "c": Logic, "alpha": Number}

func parse(t *testing.T, src string) *Program {
	t.Helper()
	p, err := Parse(src, testScope)
	require.NoError(t, err)
	return p
}

func TestParsePrintsBackWhatItRead(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"x+y*alpha", "x + y * alpha"},
		{"(x+y)*alpha", "(x + y) * alpha"},
		{"x-(y-alpha)", "x - (y - alpha)"},
		{"(x-y)-alpha", "x - y - alpha"},
		{"x/(y*alpha)", "x / (y * alpha)"},
		{"-x*y", "-x * y"},
		{"-(x*y)", "-(x * y)"},
		{"- -x", "-(-x)"},
		{"where(x<y&&!c||x==y,1e-3,.5)", "where(x < y && !c || x == y, 1e-3, .5)"},
		{"c && (c || c)", "c && (c || c)"},
		{"t = tanh(x); u = t*t; 1 - u, u", "t = tanh(x); u = t * t; 1 - u, u"},
		{"x >= 2.5E+2", "x >= 2.5E+2"},
		{"inf - pi", "inf - pi"},
	} {
		require.Equal(t, c.want, parse(t, c.src).String())
		require.Equal(t, c.want, parse(t, c.want).String())
	}
}

func TestParseErrors(t *testing.T) {
	for src, want := range map[string]string{
		"":                       "got the end, want an expression",
		"x +":                    "got the end, want an expression",
		"x y":                    `got "y", want an operator or the end`,
		"(x":                     `got the end, want ")"`,
		"z + 1":                  "z is not defined",
		"z":                      "z is not defined",
		"t = z; t":               "z is not defined",
		"x = y; x":               "x is defined twice",
		"x + 1 = y; x":           "cannot define x + 1",
		"t = x t":                `got "t", want ";"`,
		"foo(x)":                 "there is no function foo",
		"add(x, y)":              "there is no function add",
		"exp(x, y)":              "exp: got 2 arguments, want 1",
		"pow(x)":                 "pow: got 1 arguments, want 2",
		"pow(x y)":               `got "y", want ","`,
		"c + 1":                  "add: argument 1 is a logic, want a number",
		"x < y < alpha":          "lt: argument 1 is a logic, want a number",
		"!x":                     "not: argument 1 is a number, want a logic",
		"where(x, 1, 2)":         "where: argument 1 is a number, want a logic",
		"1.2.3":                  `"1.2.3" is not a number`,
		"0x10":                   `"0x10" is not a number`,
		"x % y":                  `got "%", want an operator or the end`,
		"where(c, x, y):":        `got ":", want an operator or the end`,
		"max(x, )":               `got ")", want an expression`,
		"max(x,":                 "got the end, want an expression",
		"x; y":                   `got ";", want an operator or the end`,
		"where(c, c, c)":         "where: argument 2 is a logic, want a number",
		"t = c; u = t; -u":       "neg: argument 1 is a logic, want a number",
		"t = x; u = t; u(x)":     "there is no function u",
		"exp":                    "exp is not defined",
		"x, ":                    "got the end, want an expression",
		"1e":                     `"1e" is not a number`,
		"where(c, x, y) && pi":   "and: argument 1 is a number, want a logic",
		"isnan(x) == isnan(y)":   "eq: argument 1 is a logic, want a number",
		"gcd(x, y) + sqrt(alpha": `got the end, want ","`,
	} {
		_, err := Parse(src, testScope)
		require.ErrorContains(t, err, want, "%q", src)
	}
}

func TestFreeNamesAndDomain(t *testing.T) {
	p := parse(t, "t = alpha*x; u = t + y; where(c, u, t)")
	require.Equal(t, []string{"alpha", "x", "y", "c"}, p.Free())
	require.True(t, p.Uses("y"))
	require.False(t, p.Uses("t"))
	for src, want := range map[string]Domain{
		"x + y":          Both,
		"x*2":            Both,
		"x*0.5":          Floats,
		"exp(x)":         Floats,
		"x / y":          Floats,
		"bit_and(x, y)":  Ints,
		"x == inf":       Floats,
		"max(x, -3)":     Both,
		"sqrt(gcd(x,y))": 0,
	} {
		require.Equal(t, want, parse(t, src).Domain(), src)
	}
	require.True(t, Floats.Has(F64))
	require.False(t, Floats.Has(I64))
	require.True(t, Both.Has(I32))
}

func TestNewKernel(t *testing.T) {
	k, err := NewKernel("masked_fill", "x, mask logic; value", "where(mask, value, x)")
	require.NoError(t, err)
	require.Equal(t, []Param{{Name: "x"}, {Name: "mask", Kind: Logic}}, k.In)
	require.Equal(t, []string{"value"}, k.Attrs)
	require.Equal(t, []Type{F32, F64, I64}, k.Types())
	require.Equal(t, "masked_fill.f32", k.Instance(F32))

	k, err = NewKernel("add", "x, y scalar", "x + y")
	require.NoError(t, err)
	require.Equal(t, []Param{{Name: "x"}, {Name: "y", Scalar: true}}, k.In)

	k, err = NewKernel("and", "x logic, y logic", "x && y")
	require.NoError(t, err)
	require.Equal(t, []Type{I64}, k.Types())
	require.Equal(t, "and.bool", k.Instance(I64))

	for signature, want := range map[string]string{
		"x, x":     "declared twice",
		"x; x":     "declared twice",
		"x number": `got the parameter "x number"`,
		"y":        "x is not defined",
		"x logic":  "exp: argument 1 is a logic",
	} {
		_, err := NewKernel("k", signature, "exp(x)")
		require.ErrorContains(t, err, want, signature)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("t = tanh(x); where(c && x < 1e3, -t, y)")
	f.Add("a=b;;((")
	f.Fuzz(func(t *testing.T, src string) {
		p, err := Parse(src, testScope)
		if err != nil {
			return
		}
		q, err := Parse(p.String(), testScope)
		require.NoError(t, err, "%q", p)
		require.Equal(t, p.String(), q.String())
	})
}

func TestNear(t *testing.T) {
	for _, c := range []struct{ src, far, want, want64 string }{
		{"y*sin(x)", "trigf(x_)", "out = y_ * plait_vm_near_sinf(x_);", "out = y_ * plait_vm_near_sin(x_);"},
		{"y*tan(x)", "trigf(x_)", "out = y_ * plait_vm_near_tanf(x_);", "out = y_ * plait_vm_near_tan(x_);"},
		{"sin(x) + fmod(x, y)", "trigf(x_)", "out = plait_vm_near_sinf(x_) + plait_vm_near_fmodf(x_, y_);", ""},
		{"pow(x, y)", "powf(x_, y_)", "out = plait_vm_near_powf(x_, y_);", ""},
		{"zeta(x, y)", "zetaf(x_, y_)", "out = plait_vm_near_zetaf(x_, y_);", ""},
		{"sin(2*x)", "trigf(2.0f * x_)", "out = plait_vm_near_sinf(2.0f * x_);", "out = plait_vm_near_sin(2.0 * x_);"},
		{"t = x + y; cos(t)/t", "trigf(x_ + y_)", "const float t_ = x_ + y_;\nout = plait_vm_near_cosf(t_) / t_;", "const double t_ = x_ + y_;\nout = plait_vm_near_cos(t_) / t_;"},
		{"sin(x)*exp(x/y)", "trigf(x_)", "out = plait_vm_near_sinf(x_) * plait_vm_expf(x_ / y_);", "out = plait_vm_near_sin(x_) * plait_vm_exp(x_ / y_);"},
		{"sin(x)*exp(x)", "trigf(x_)", "out = plait_vm_near_sinf(x_) * plait_vm_near_expf(x_);", "out = plait_vm_near_sin(x_) * plait_vm_near_exp(x_);"},
		{"exp(x)", "expf(x_)", "out = plait_vm_near_expf(x_);", "out = plait_vm_near_exp(x_);"},
		{src: "sin(exp(x))"}, {src: "exp(-x)"}, {src: "fmod(x, 2)"}, {src: "pow(x, y - 1)"},
	} {
		p := parse(t, c.src)
		calls := p.Near(F32)
		if c.want == "" {
			require.Empty(t, calls, c.src)
			continue
		}
		require.Equal(t, "plait_vm_far_"+c.far, calls[0].FarC(F32))
		emit := func(_ int, v string) string { return "out = " + v + ";" }
		require.Equal(t, c.want, p.NearC(F32, emit))
		if calls = p.Near(F64); c.want64 == "" {
			require.Empty(t, calls, c.src)
			continue
		}
		require.Equal(t, "plait_vm_far_"+strings.ReplaceAll(strings.Replace(c.far, "f(", "(", 1), "0f", "0"), calls[0].FarC(F64))
		require.Equal(t, c.want64, p.NearC(F64, emit))
	}
}
