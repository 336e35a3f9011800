package resample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func operand(t *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: t.Ptr}, DType: core.DType(t.DType), Shape: t.Shape, Strides: t.Strides}
}

// apply runs a kernel on x with each of several pools, requires the same bits of all, and returns the result. All tensors
// end where an unmapped page begins.
func apply(t *testing.T, k kernel.Func, ints []int64, floats []float64, x *rawtensor.Tensor, shape []int) *rawtensor.Tensor {
	t.Helper()
	y := rawtensor.New(t, x.DType, shape...)
	var first []byte
	for _, threads := range []int{1, 2, 5} {
		p := pool.New(threads)
		ctx := &kernel.Context{Pool: p.Ptr()}
		for i := range y.Memory() {
			y.Memory()[i] = 0xa5
		}
		c := &core.Call{Op: "test", Ints: ints, Floats: floats, Ins: []core.Operand{operand(x), {IsNumber: true, Number: core.FloatNumber(3)}},
			Outs: []core.Operand{operand(y)}}
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

// checkMap checks a linear map and its transpose in every floating-point dtype: <y, A x> = <A' y, x>, and the values of
// narrow dtypes against those of float64.
func checkMap(t *testing.T, r *rand.Rand, forward, backward kernel.Func, ints []int64, floats []float64, in, out []int) {
	t.Helper()
	base := rawtensor.New(t, rawtensor.Float64, in...).Random(r)
	baseGrad := rawtensor.New(t, rawtensor.Float64, out...).Random(r)
	y := apply(t, forward, ints, floats, base, out)
	dx := apply(t, backward, ints, floats, baseGrad, in)
	left, right := dot(baseGrad, y), dot(dx, base)
	require.InDelta(t, left, right, 1e-9*(1+math.Abs(left)))
	for dtype, tolerance := range map[int]float64{rawtensor.Float32: 1e-5, rawtensor.Float16: 2e-3, rawtensor.BFloat16: 1.6e-2} {
		narrow := func(x *rawtensor.Tensor) *rawtensor.Tensor {
			return rawtensor.New(t, dtype, x.Shape...).Fill(func(i []int) float64 { return x.Value(i...) })
		}
		for _, pair := range [][2]*rawtensor.Tensor{
			{y, apply(t, forward, ints, floats, narrow(base), out)},
			{dx, apply(t, backward, ints, floats, narrow(baseGrad), in)},
		} {
			want := list(pair[0])
			for i, got := range list(pair[1]) {
				require.InDelta(t, want[i], got, tolerance*(8+math.Abs(want[i])), rawtensor.Name(dtype))
			}
		}
	}
}

func TestInterpolations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		in, out := []int{r.IntN(4), 1 + r.IntN(3), 1 + r.IntN(9), 1 + r.IntN(40)}, []int{0, 1 + r.IntN(3), 1 + r.IntN(9), 1 + r.IntN(50)}
		out[0] = in[0]
		mode, align := int64(r.IntN(4)), int64(r.IntN(2))
		scale := []float64{0, 0, 0}
		if r.IntN(2) == 0 {
			scale[2] = float64(out[3]) / float64(in[3]) * 1.01
		}
		t.Run(fmt.Sprintf("%d mode %d", i, mode), func(t *testing.T) {
			checkMap(t, r, interpolateCall, interpolateGradCall, []int64{3, mode, align}, scale, in, out)
		})
	}
}

func TestPaddings(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 80 {
		mode := int64(r.IntN(4))
		in := []int{r.IntN(4), 1 + r.IntN(3), 1 + r.IntN(5), 1 + r.IntN(40)}
		out := append([]int{}, in...)
		ints := []int64{3, mode}
		for d := 1; d < 4; d++ {
			limit := in[d]
			if mode == reflectMode {
				limit--
			}
			left, right := r.IntN(2*limit+1)-limit, r.IntN(limit+1)
			ints = append(ints, int64(left))
			out[d] += left + right
		}
		t.Run(fmt.Sprintf("%d mode %d", i, mode), func(t *testing.T) {
			if mode != 0 { // the constant is no linear map
				checkMap(t, r, padCall, padGradCall, ints, nil, in, out)
			}
			for _, dtype := range rawtensor.DTypes[1:] {
				x := rawtensor.New(t, dtype, in...).Random(r)
				y := apply(t, padCall, ints, nil, x, out)
				y.Each(func(o []int) {
					at := []int{o[0], 0, 0, 0}
					for d := 1; d < 4; d++ {
						p, n := o[d]-int(ints[1+d]), in[d]
						switch {
						case p >= 0 && p < n:
						case mode == reflectMode:
							if p = max(p, -p); p >= n {
								p = 2*(n-1) - p
							}
						case mode == 2:
							p = min(max(p, 0), n-1)
						case mode == 3:
							p = (p + n) % n
						default:
							require.Equal(t, 3.0, y.Value(o...))
							return
						}
						at[d] = p
					}
					require.Equal(t, x.Bits(at...), y.Bits(o...))
				})
			}
		})
	}
}

const reflectMode = 1

func TestPatches(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 40 {
		var kernel, stride, padding, dilation, places []int64
		image := []int{r.IntN(3), 1 + r.IntN(3), 0, 0}
		for d := range 2 {
			kernel, stride = append(kernel, int64(1+r.IntN(4))), append(stride, int64(1+r.IntN(3)))
			padding, dilation = append(padding, int64(r.IntN(4))), append(dilation, int64(1+r.IntN(3)))
			reach := dilation[d]*(kernel[d]-1) + 1
			image[2+d] = int(max(1, reach-2*padding[d])) + r.IntN(30)
			places = append(places, (int64(image[2+d])+2*padding[d]-reach)/stride[d]+1)
		}
		var ints []int64
		for _, v := range [][]int64{kernel, stride, padding, dilation, places} {
			ints = append(ints, v...)
		}
		columns := []int{image[0], image[1] * int(kernel[0]*kernel[1]), int(places[0] * places[1])}
		t.Run(fmt.Sprint(i), func(t *testing.T) { checkMap(t, r, unfoldCall, foldCall, ints, nil, image, columns) })
	}
}
