package op

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func values(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func TestElementwisePromotes(t *testing.T) {
	f32, i64, u8 := Ones(2), To(Ones(2), core.Int64), To(Ones(2), core.Uint8)
	b, bf16, f16 := To(Ones(2), core.Bool), To(Ones(2), core.BFloat16), To(Ones(2), core.Float16)
	zeroDim := To(Reshape(Ones(1)), core.Float64)
	for _, c := range []struct {
		name string
		got  *core.Tensor
		want core.DType
	}{
		{"float32 + int64", Add(f32, i64), core.Float32},
		{"int64 + float number", Add(i64, core.Num(1.5)), core.Float32},
		{"int64 + int number", Add(i64, core.IntNum(1)), core.Int64},
		{"uint8 + int number", Add(u8, core.IntNum(1)), core.Uint8},
		{"bool + bool", Add(b, b), core.Bool},
		{"bool + int number", Add(b, core.IntNum(1)), core.Int64},
		{"bfloat16 + float number", Add(bf16, core.Num(1.5)), core.BFloat16},
		{"bfloat16 + float16", Add(bf16, f16), core.Float32},
		{"float32 + 0-d float64", Add(f32, zeroDim), core.Float32},
		{"int64 / int64", Div(i64, i64), core.Float32},
		{"exp of int64", Exp(i64), core.Float32},
		{"int64 < float number", Lt(i64, core.Num(1.5)), core.Bool},
		{"floor of int64", Floor(i64), core.Int64},
		{"pow of int64", Pow(i64, core.IntNum(2)), core.Int64},
		{"pow of int64 with a float", Pow(i64, core.Num(2)), core.Float32},
		{"and of bools", BitwiseAnd(b, b), core.Bool},
		{"where with a number", Where(b, bf16, core.Num(1)), core.BFloat16},
	} {
		require.NoError(t, c.got.Err(), c.name)
		require.Equal(t, c.want, c.got.DType(), c.name)
	}
	require.Equal(t, []float64{2.5, 2.5}, values(t, Add(i64, core.Num(1.5))))
	require.Equal(t, []float64{1, 1}, values(t, Add(b, b)), "the sum of bools is their or")
	require.Equal(t, []float64{5}, values(t, Add(core.FromSlice([]uint8{250}, 1), core.IntNum(11))), "bytes wrap")
}

func TestElementwiseErrors(t *testing.T) {
	x, i64, b := Ones(2, 3), To(Ones(2, 3), core.Int64), To(Ones(2, 3), core.Bool)
	for _, c := range []struct {
		want string
		got  *core.Tensor
	}{
		{"add: shapes [[2 3] [2]] do not broadcast", Add(x, Ones(2))},
		{"add: got a nil tensor", Add(x, nil)},
		{"add_: a tensor of shape [3] cannot hold the result of shape [2 3]", AddInPlace(Ones(3), x)},
		{"add_: a result of float32 can't be cast to int64, the tensor's dtype", AddInPlace(i64, x)},
		{"div_: a result of float32 can't be cast to int64, the tensor's dtype", DivInPlace(i64, i64)},
		{"add_: a number cannot be changed", AddInPlace(core.Num(1), x)},
		{"add_: elements of a tensor expanded", AddInPlace(Expand(Ones(1, 3), 2, 3), x)},
		{"add_: a leaf that requires a gradient", AddInPlace(Ones(2).SetRequiresGrad(true), core.Num(1))},
		{"sub: got bool", Sub(b, b)},
		{"neg: got bool", Neg(b)},
		{"bitwise_and: got float32, want an integer dtype", BitwiseAnd(x, x)},
		{"where: the condition must be bool, got float32", Where(x, x, x)},
		{"clamp: got no bound", Clamp(x, nil, nil)},
		{"pow: integers have no negative integer powers", Pow(i64, core.IntNum(-1))},
		{"masked_fill: a tensor of int64 cannot hold a value of float32", MaskedFill(i64, b, core.Num(1.5))},
		{"prelu: got weights of shape [2]", Prelu(x, Ones(2))},
		{"glu: got the shape [2 3], want an even size", Glu(x, -1)},
		{"gelu: got the approximation \"sharp\"", Gelu(x, "sharp")},
	} {
		require.ErrorContains(t, c.got.Err(), c.want)
	}
	zero := FloorDivide(i64, Sub(i64, i64))
	require.NoError(t, zero.Err(), "only the kernel sees it")
	_, err := core.Values[float64](zero)
	require.ErrorContains(t, err, "floor_divide: integer division by zero")
}

// The operand of an operation in place may share its memory in another layout.
func TestInPlaceWithOverlappingOperands(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	AddInPlace(x, Permute(x, 1, 0))
	require.Equal(t, []float64{2, 5, 5, 8}, values(t, x))
	AddInPlace(x, Narrow(x, 0, 0, 1))
	require.Equal(t, []float64{4, 10, 7, 13}, values(t, x))
	AddInPlace(x, x)
	require.Equal(t, []float64{8, 20, 14, 26}, values(t, x))
	y := Narrow(x, 1, 1, 1)
	AddInPlace(y, Narrow(x, 1, 0, 1))
	require.Equal(t, []float64{8, 28, 14, 40}, values(t, x))
}

func TestEdgesOfFloats(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	x := core.FromSlice([]float32{float32(nan), float32(inf), -1, 0}, 4)
	y := core.FromSlice([]float32{1, float32(nan), 2, 0}, 4)
	same := func(want []float64, got *core.Tensor) {
		t.Helper()
		v := values(t, got)
		require.Len(t, v, len(want))
		for i := range want {
			require.True(t, want[i] == v[i] || math.IsNaN(want[i]) && math.IsNaN(v[i]), "got %v, want %v", v, want)
		}
	}
	same([]float64{nan, nan, 2, 0}, Maximum(x, y))
	same([]float64{nan, nan, -1, 0}, Minimum(x, y))
	same([]float64{1, inf, 2, 0}, Fmax(x, y))
	same([]float64{nan, inf, 0, 0}, Relu(x))
	same([]float64{0, 1, -1, 0}, Sign(x))
	same([]float64{1, 0, 0, 0}, IsNaN(x))
	same([]float64{0, 1, 0, 0}, IsInf(x))
	same([]float64{0, 0, 1, 1}, IsFinite(x))
	same([]float64{0, 0, 0, 1}, Eq(x, y))
	same([]float64{1, 1, 1, 0}, Ne(x, y))
	same([]float64{7, math.MaxFloat32, -1, 0}, NanToNum(x, 7, nil, nil))
	same([]float64{inf, inf}, Logaddexp(core.FromSlice([]float32{float32(inf), float32(inf)}, 2), core.FromSlice([]float32{1, float32(inf)}, 2)))
	same([]float64{0, nan}, Xlogy(Zeros(2), core.FromSlice([]float32{0, float32(nan)}, 2)))
}

// Half-precision tensors are compared with numbers, and with tensors that do not widen them, as these are in their dtype.
func TestComparisonsRoundToHalf(t *testing.T) {
	for _, d := range []core.DType{core.Float16, core.BFloat16} {
		x := To(Full([]int{33}, core.Num(0.1), TensorOptions{}), d)
		for _, y := range []*core.Tensor{core.Num(0.1), Full(nil, core.Num(0.1), TensorOptions{DType: new(core.Float64)})} {
			for _, is := range []*core.Tensor{Eq(x, y), Le(x, y), Ge(x, y), Eq(y, x), EqInPlace(Clone(x), y)} {
				require.Equal(t, slices.Repeat([]float64{1}, 33), values(t, is), "%v", d)
			}
			for _, not := range []*core.Tensor{Ne(x, y), Lt(x, y), Gt(x, y), Lt(y, x)} {
				require.Equal(t, make([]float64, 33), values(t, not), "%v", d)
			}
		}
		require.Equal(t, []float64{1}, values(t, Eq(To(core.FromSlice([]float32{4096}, 1), d), core.FromSlice([]int64{4097}, 1))))
		require.Equal(t, []float64{0}, values(t, Eq(To(core.FromSlice([]float32{4096}, 1), d), core.FromSlice([]float32{4097}, 1))), "float32 stays")
	}
}

// Results of float64 are the same whatever stands beside their arguments, and near those of Go.
func TestCircularFunctionsOfFloat64(t *testing.T) {
	x := make([]float64, 1001)
	for i := range x {
		x[i] = 0.037*float64(i) - 11
	}
	for _, f := range []struct {
		name string
		op   func(*core.Tensor) *core.Tensor
		want func(float64) float64
	}{
		{"sin", Sin, math.Sin}, {"cos", Cos, math.Cos}, {"tan", Tan, math.Tan}, {"atan", Atan, math.Atan},
		{"asin", func(x *core.Tensor) *core.Tensor { return Asin(Mul(x, core.Num(0.03))) }, func(x float64) float64 { return math.Asin(x * 0.03) }},
		{"acos", func(x *core.Tensor) *core.Tensor { return Acos(Mul(x, core.Num(0.03))) }, func(x float64) float64 { return math.Acos(x * 0.03) }},
	} {
		got := values(t, f.op(core.FromSlice(x, len(x))))
		for i, y := range got {
			require.InEpsilon(t, f.want(x[i]), y, 1e-13, "%s(%v)", f.name, x[i])
		}
		for _, far := range []float64{1e9, math.Inf(1), math.NaN()} {
			require.Equal(t, got[3:], values(t, f.op(core.FromSlice(append([]float64{far}, x[3:]...), len(x)-2)))[1:], f.name)
		}
	}
}

// Derivatives are differentiated again through the operations that their functions stand for.
func TestEveryFunctionIsAnOperation(t *testing.T) {
	for _, f := range expr.Functions() {
		if f.Domain&expr.Floats != 0 {
			require.Contains(t, elementwiseOps, f.Op, f.Name)
		}
	}
}

func TestIntegersAreNotComputedWithFractions(t *testing.T) {
	core.Tidy(func() {
		x := core.FromSlice([]int64{-2, 3}, 2)
		for name, y := range map[string]*core.Tensor{
			"add":        AddScaled(x, x, 0.75),
			"leaky_relu": LeakyRelu(x, 0.1),
			"in place":   LeakyReluInPlace(Clone(x), 0.1),
			"addcmul":    Addcmul(x, x, x, 0.5),
		} {
			require.ErrorContains(t, y.Err(), "want a whole number", name)
		}
		require.Equal(t, []float64{-6, 9}, values(t, AddScaled(x, x, 2)))
	})
}
