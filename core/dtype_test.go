package core

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPromotionFollowsTheLattice(t *testing.T) {
	for _, c := range []struct{ a, b, want DType }{
		{Bool, Bool, Bool}, {Bool, Uint8, Uint8}, {Uint8, Int32, Int32}, {Int32, Int64, Int64},
		{Int64, Float16, Float16}, {Int64, BFloat16, BFloat16}, {Float16, BFloat16, Float32},
		{BFloat16, Float16, Float32}, {Float16, Float32, Float32}, {Float32, Float64, Float64}, {Bool, Float64, Float64},
		{Uint8, Int8, Int16}, {Int8, Int16, Int16}, {Uint8, Int16, Int16}, {Int16, Int32, Int32}, {Bool, Int8, Int8}, {Uint64, Float16, Float16},
		{Uint16, BFloat16, BFloat16}, {Uint16, Int32, NoDType}, {Uint32, Bool, NoDType}, {Uint64, Uint32, NoDType}, {NoDType, Uint8, NoDType},
	} {
		require.Equal(t, c.want, Promote(c.a, c.b), "%v %v", c.a, c.b)
		require.Equal(t, c.want, Promote(c.b, c.a), "%v %v", c.b, c.a)
	}
	for _, a := range DTypes() {
		require.Equal(t, a, Promote(a, a))
		parsed, err := ParseDType(a.String())
		require.NoError(t, err)
		require.Equal(t, a, parsed)
	}
	for d, limits := range map[DType][2]int64{Bool: {0, 1}, Int8: {-128, 127}, Uint16: {0, 65535}, Int32: {math.MinInt32, math.MaxInt32},
		Uint32: {0, math.MaxUint32}, Int64: {math.MinInt64, math.MaxInt64}, Uint64: {0, math.MaxInt64}} {
		least, largest := d.Limits()
		require.Equal(t, limits, [2]int64{least, largest}, d)
	}
	_, err := ParseDType("float8")
	require.ErrorContains(t, err, `unknown dtype "float8"`)
}

func TestResultTypeWeighsNumbersAndScalarsByCategory(t *testing.T) {
	tensor := func(d DType, shape ...int) *Tensor { return &Tensor{dtype: d, shape: shape} }
	for _, c := range []struct {
		want DType
		of   []*Tensor
	}{
		{Float16, []*Tensor{tensor(Float16, 2), Num(2)}},
		{Float16, []*Tensor{tensor(Float16, 2), tensor(Float64)}},
		{Float64, []*Tensor{tensor(Int32, 2), tensor(Float64)}},
		{Float32, []*Tensor{tensor(Int32, 2), Num(0.5)}},
		{Int32, []*Tensor{tensor(Int32, 2), IntNum(7)}},
		{Uint8, []*Tensor{tensor(Uint8, 2), IntNum(7), tensor(Int64)}},
		{Int64, []*Tensor{tensor(Bool, 2), IntNum(1)}},
		{Bool, []*Tensor{tensor(Bool, 2), BoolNum(true)}},
		{Int32, []*Tensor{tensor(Int32), tensor(Int32)}},
		{Float64, []*Tensor{tensor(Float32, 0), tensor(Float64, 3)}},
		{Float32, []*Tensor{Num(1), IntNum(1)}},
	} {
		require.Equal(t, c.want, ResultType(c.of...), "%v", c.of)
	}
}

func TestEveryHalfSurvivesTheRoundTrip(t *testing.T) {
	for b := range 1 << 16 {
		h := uint16(b)
		if v := Float16Value(h); v == v {
			require.Equal(t, h, Float16Bits(v))
			exp, frac := int(h>>10&31), float64(h&1023)
			want := math.Ldexp(1+frac/1024, exp-15)
			switch exp {
			case 0:
				want = math.Ldexp(frac, -24)
			case 31:
				want = math.Inf(1)
			}
			require.Equal(t, want, math.Abs(float64(v)))
		} else {
			require.NotEqual(t, Float16Bits(v)&0x3ff, uint16(0))
		}
		if v := BFloat16Value(h); v == v {
			require.Equal(t, h, BFloat16Bits(v))
		}
	}
}

func TestHalvesRoundToNearestEven(t *testing.T) {
	for _, c := range []struct {
		x        float32
		f16, b16 float32
	}{
		{1 + 1.0/2048, 1, 1}, {1 + 3.0/2048, 1 + 2.0/1024, 1}, {65519, 65504, 65536}, {65520, float32(math.Inf(1)), 65536},
		{-65520, float32(math.Inf(-1)), -65536}, {1e-8, 0, 0x1.58p-27}, {0x1p-25, 0, 0x1p-25}, {0x1.8p-25, 0x1p-24, 0x1.8p-25},
		{1 + 1.0/256, 1 + 4.0/1024, 1}, {1 + 3.0/256, 1 + 12.0/1024, 1 + 2.0/128},
	} {
		require.Equal(t, c.f16, Float16Value(Float16Bits(c.x)), "%g", c.x)
		require.InDelta(t, c.b16, BFloat16Value(BFloat16Bits(c.x)), math.Abs(float64(c.b16))*1e-5, "%g", c.x)
	}
	require.True(t, math.IsNaN(float64(BFloat16Value(BFloat16Bits(float32(math.NaN()))))))
	require.True(t, math.IsNaN(float64(Float16Value(Float16Bits(float32(math.NaN()))))))
}
