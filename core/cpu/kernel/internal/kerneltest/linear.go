package kerneltest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func operandOf(t *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: t.Ptr}, DType: core.DType(t.DType), Shape: t.Shape, Strides: t.Strides}
}

// Apply runs a kernel on x with each of several pools, requires the same bits from all, and returns the result. All
// tensors end where an unmapped page begins.
func Apply(t *testing.T, k kernel.Func, ints []int64, floats []float64, x *rawtensor.Tensor, shape []int) *rawtensor.Tensor {
	t.Helper()
	y := rawtensor.New(t, x.DType, shape...)
	var first []byte
	for _, threads := range []int{1, 2, 5} {
		p := pool.New(threads)
		ctx := &kernel.Context{Pool: p.Ptr()}
		for i := range y.Memory() {
			y.Memory()[i] = 0xa5
		}
		c := &core.Call{Op: "test", Ints: ints, Floats: floats, Ins: []core.Operand{operandOf(x), {IsNumber: true, Number: core.FloatNumber(3)}},
			Outs: []core.Operand{operandOf(y)}}
		require.NoError(t, k(ctx, c))
		ctx.FreeScratch()
		p.Close()
		if threads == 1 {
			first = append([]byte{}, y.Memory()...)
		}
		require.Equal(t, first, y.Memory(), "%d threads", threads)
	}
	return y
}

func list(x *rawtensor.Tensor) []float64 {
	v := make([]float64, 0, x.Numel())
	x.Each(func(i []int) { v = append(v, x.Value(i...)) })
	return v
}

func dot(x, y *rawtensor.Tensor) float64 {
	s, v := 0.0, list(y)
	for i, a := range list(x) {
		s += a * v[i]
	}
	return s
}

// CheckLinear checks a linear map A and its transpose A' in every floating-point dtype: <y, A x> = <A' y, x>. It
// compares the values of narrow dtypes with those of float64.
func CheckLinear(t *testing.T, r *rand.Rand, forward, backward kernel.Func, ints []int64, floats []float64, in, out []int) {
	t.Helper()
	base := rawtensor.New(t, rawtensor.Float64, in...).Random(r)
	baseGrad := rawtensor.New(t, rawtensor.Float64, out...).Random(r)
	y := Apply(t, forward, ints, floats, base, out)
	dx := Apply(t, backward, ints, floats, baseGrad, in)
	left, right := dot(baseGrad, y), dot(dx, base)
	require.InDelta(t, left, right, 1e-9*(1+math.Abs(left)))
	for dtype, tolerance := range map[int]float64{rawtensor.Float32: 1e-5, rawtensor.Float16: 2e-3, rawtensor.BFloat16: 1.6e-2} {
		narrow := func(x *rawtensor.Tensor) *rawtensor.Tensor {
			return rawtensor.New(t, dtype, x.Shape...).Fill(func(i []int) float64 { return x.Value(i...) })
		}
		for _, pair := range [][2]*rawtensor.Tensor{
			{y, Apply(t, forward, ints, floats, narrow(base), out)},
			{dx, Apply(t, backward, ints, floats, narrow(baseGrad), in)},
		} {
			want := list(pair[0])
			for i, got := range list(pair[1]) {
				require.InDelta(t, want[i], got, tolerance*(8+math.Abs(want[i])), rawtensor.Name(dtype))
			}
		}
	}
}
