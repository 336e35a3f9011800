package expr

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func evalFloat(t *testing.T, src string, x, y float64) float64 {
	t.Helper()
	v, err := parse(t, src).EvalFloat(map[string]float64{"x": x, "y": y})
	require.NoError(t, err)
	return v[0]
}

func TestEvalFloat(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		src        string
		x, y, want float64
	}{
		{"x - y - 1", 5, 3, 1},
		{"x + y * 2 / 4", 1, 6, 4},
		{"-x * y", 2, 3, -6},
		{"where(x < y, x, y)", 3, 2, 2},
		{"where(x > 0 && y > 0 || x == y, 1, 0)", -1, -1, 1},
		{"where(!(x >= y), 1, 0)", nan, 1, 1},
		{"t = x*x; u = t + 1; u*t", 2, 0, 20},
		{"max(x, y)", nan, 1, nan},
		{"max(x, y)", inf, nan, nan},
		{"min(x, y)", -inf, nan, nan},
		{"min(x, y)", 2, 1, 1},
		{"sign(x)", nan, 0, 0},
		{"sign(x)", -0.5, 0, -1},
		{"round(x)", 2.5, 0, 2},
		{"round(x)", -3.5, 0, -4},
		{"fmod(x, y)", -7, 3, -1},
		{"remainder(x, y)", -7, 3, 2},
		{"remainder(x, y)", 7, -3, -2},
		{"floor_divide(x, y)", -7, 3, -3},
		{"floor_divide(x, y)", 1, 0.1, 9},
		{"floor_divide(x, y)", 1, 0, inf},
		{"rsqrt(x)", 4, 0, 0.5},
		{"sigmoid(x)", 0, 0, 0.5},
		{"where(isinf(x) && !isnan(y), pi, nan)", -inf, 0, math.Pi},
		{"digamma(x)", 1, 0, -0.5772156649015329},
		{"digamma(x)", -0.5, 0, 0.03648997397857652},
		{"digamma(x)", 0, 0, -inf},
		{"digamma(x)", -2, 0, nan},
		{"zeta(x, y)", 2, 1, math.Pi * math.Pi / 6},
		{"zeta(x, y)", 4, 0.5, math.Pow(math.Pi, 4) / 6},
		{"zeta(x, y)", 2, -0.5, math.Pi*math.Pi/2 + 4},
		{"zeta(x, y)", 3, -0.5, 14*1.2020569031595943/2 - 8},
		{"zeta(x, y)", 1, 1, inf},
		{"zeta(x, y)", 0.5, 1, nan},
		{"zeta(x, y)", 2, -3, inf},
		{"zeta(x, y)", 2.5, -3.5, nan},
		{"lgamma(x)", 10, 0, math.Log(362880)},
		{"copysign(x, y)", 3, math.Copysign(0, -1), -3},
	} {
		got := evalFloat(t, c.src, c.x, c.y)
		if math.IsNaN(c.want) {
			require.True(t, math.IsNaN(got), "%s at %v, %v: %v", c.src, c.x, c.y, got)
		} else if math.IsInf(c.want, 0) {
			require.Equal(t, c.want, got, "%s at %v, %v", c.src, c.x, c.y)
		} else {
			require.InDelta(t, c.want, got, 1e-12*(1+math.Abs(c.want)), "%s at %v, %v", c.src, c.x, c.y)
		}
	}
}

func TestEvalInt(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	for _, c := range []struct {
		src        string
		x, y, want int64
	}{
		{"x + y", most, 1, least},
		{"x * y", most, 2, -2},
		{"abs(x)", least, 0, least},
		{"sign(x)", -7, 0, -1},
		{"trunc_divide(x, y)", -7, 2, -3},
		{"floor_divide(x, y)", -7, 2, -4},
		{"floor_divide(x, y)", least, -1, least},
		{"floor_divide(x, y)", 5, 0, 0},
		{"fmod(x, y)", -7, 2, -1},
		{"remainder(x, y)", -7, 2, 1},
		{"remainder(x, y)", 7, -2, -1},
		{"remainder(x, y)", 7, 0, 0},
		{"pow(x, y)", -3, 3, -27},
		{"pow(x, y)", -1, -3, -1},
		{"pow(x, y)", 1, -3, 1},
		{"pow(x, y)", 2, -1, 0},
		{"pow(x, y)", 0, 0, 1},
		{"shl(x, y)", 1, 63, least},
		{"shl(x, y)", 1, 64, 0},
		{"shl(x, y)", 1, -1, 0},
		{"shr(x, y)", -8, 1, -4},
		{"shr(x, y)", -8, 99, -1},
		{"shr(x, y)", 8, -1, 0},
		{"bit_xor(bit_and(x, y), bit_or(x, bit_not(y)))", 12, 10, -11},
		{"gcd(x, y)", -12, 18, 6},
		{"gcd(x, y)", 0, -5, 5},
		{"where(x > y && x != 0, x, -y)", 1, 2, -2},
	} {
		v, err := parse(t, c.src).EvalInt(map[string]int64{"x": c.x, "y": c.y})
		require.NoError(t, err)
		require.Equal(t, c.want, v[0], "%s at %d, %d", c.src, c.x, c.y)
	}
	_, err := parse(t, "exp(x)").EvalInt(map[string]int64{"x": 1})
	require.ErrorContains(t, err, "exp: got integers")
	_, err = parse(t, "gcd(x, x)").EvalFloat(map[string]float64{"x": 1})
	require.ErrorContains(t, err, "gcd: got floats")
	_, err = parse(t, "x + y").EvalInt(map[string]int64{"x": 1})
	require.ErrorContains(t, err, "y has no value")
}

func TestVectorises(t *testing.T) {
	for _, c := range []struct {
		src           string
		float, double bool
	}{
		{"x * y + 1", true, true},
		{"exp(-x) + log(y) * sigmoid(x)", true, true},
		{"exp(x) + sin(y)", true, false},
		{"hypot(x, y)", true, false},
		{"zeta(x, y)", false, false},
	} {
		require.Equal(t, c.float, parse(t, c.src).Vectorises(F32), c.src)
		require.Equal(t, c.double, parse(t, c.src).Vectorises(F64), c.src)
	}
}

func TestPrintC(t *testing.T) {
	emit := func(i int, v string) string { return "out = " + v + ";" }
	for _, c := range []struct {
		src  string
		t    Type
		want string
	}{
		{"x + 2*y", F32, "out = x_ + 2.0f * y_;"},
		{"x + 2*y", F64, "out = x_ + 2.0 * y_;"},
		{"x + 2*y", I64, "out = ew_add_i64(x_, ew_mul_i64(INT64_C(2), y_));"},
		{"exp(-x)", F32, "out = plait_vm_expf(-x_);"},
		{"exp(-x)", F64, "out = plait_vm_exp(-x_);"},
		{"floor(x)", F32, "out = ew_floor_f32(x_);"},
		{"where(x < y && !c, pi, -inf)", F32, "out = (((x_ < y_) & !c_) ? 3.141592653589793f : -INFINITY);"},
		{"t = x < y; where(t || c, x, y)", I64, "const bool t_ = x_ < y_;\nout = ((t_ | c_) ? x_ : y_);"},
		{"t = x*x; t", F64, "const double t_ = x_ * x_;\nout = t_;"},
	} {
		require.Equal(t, c.want, parse(t, c.src).C(c.t, emit), c.src)
	}
}

func TestPrintWGSL(t *testing.T) {
	emit := func(i int, v string) string { return "out = " + v + ";" }
	for _, c := range []struct {
		src  string
		t    Type
		want string
	}{
		{"x + 2*y", F32, "out = x_ + 2.0f * y_;"},
		{"x + 2*y", I32, "out = x_ + 2i * y_;"},
		{"x + 5000000000*y", I64, "out = plait_add_i64(x_, plait_mul_i64(vec2<u32>(705032704u, 1u), y_));"},
		{"where(x != y, inf, nan)", F32, "out = select(plait_nan(), plait_inf(), !(x_ == y_));"},
		{"where(x != y, pi, exp(0.5))", F64, "out = select(plait_exp_f64(0.5), 3.141592653589793, !(x_ == y_));"},
		{"where(x < y, x, y)", I64, "out = select(y_, x_, plait_lt_i64(x_, y_));"},
		{"t = exp(x); abs(t)", F32, "let t_ = plait_exp_f32(x_);\nout = abs(t_);"},
	} {
		require.Equal(t, c.want, parse(t, c.src).WGSL(c.t, emit), c.src)
	}
}
