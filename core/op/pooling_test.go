package op_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// poolWindow returns the positions in one dimension that output o reads, and the size of its window with padding.
func poolWindow(o, in, out, kernel, stride, padding, dilation int, adaptive bool) (at []int, size int) {
	if adaptive {
		for i := o * in / out; i < ((o+1)*in+out-1)/out; i++ {
			at = append(at, i)
		}
		return at, len(at)
	}
	for k := range kernel {
		if i := o*stride - padding + k*dilation; i >= 0 && i < in {
			at = append(at, i)
		}
		if o*stride-padding+k < in+padding {
			size++
		}
	}
	return at, size
}

type poolCase struct {
	in, out, kernel, stride, padding, dilation []int
	adaptive                                   bool
}

// pool calls f for every output of one plane with the positions of its window, in order, and its size with padding.
func (c poolCase) pool(f func(out int, at []int, size int)) {
	odometer(c.out, func(o []int) {
		at, size := []int{0}, 1
		for d := range c.in {
			var w []int
			var n int
			if c.adaptive {
				w, n = poolWindow(o[d], c.in[d], c.out[d], 0, 0, 0, 0, true)
			} else {
				w, n = poolWindow(o[d], c.in[d], c.out[d], c.kernel[d], c.stride[d], c.padding[d], c.dilation[d], false)
			}
			next := []int{}
			for _, a := range at {
				for _, i := range w {
					next = append(next, a*c.in[d]+i)
				}
			}
			at, size = next, size*n
		}
		f(flat(c.out, o), at, size)
	})
}

func ones(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

func poolCases() []poolCase {
	cases := []poolCase{}
	r := rand.New(rand.NewPCG(8, 9))
	for range 150 {
		nd := 1 + r.IntN(3)
		c := poolCase{dilation: ones(nd), out: make([]int, nd)}
		for d := range nd {
			c.kernel = append(c.kernel, 1+r.IntN(4))
			c.stride = append(c.stride, 1+r.IntN(3))
			c.dilation[d] = 1 + r.IntN(2)
			reach := (c.kernel[d]-1)*c.dilation[d] + 1
			c.padding = append(c.padding, r.IntN(c.kernel[d]/2+1))
			c.in = append(c.in, max(1, reach-2*c.padding[d])+r.IntN(40/nd))
		}
		c.adaptive = r.IntN(3) == 0
		if c.adaptive {
			for d := range nd {
				c.out[d] = 1 + r.IntN(12)
			}
		}
		cases = append(cases, c)
	}
	return cases
}

func TestPoolingAgainstItsDefinition(t *testing.T) {
	type maxFn = func(x *core.Tensor, k []int, o op.MaxPoolOptions) (*core.Tensor, *core.Tensor)
	type avgFn = func(x *core.Tensor, k []int, o op.AvgPoolOptions) *core.Tensor
	maxs := []maxFn{op.MaxPool1dWithIndices, op.MaxPool2dWithIndices, op.MaxPool3dWithIndices}
	avgs := []avgFn{op.AvgPool1d, op.AvgPool2d, op.AvgPool3d}
	adaptiveMax := []func(x *core.Tensor, s []int) (*core.Tensor, *core.Tensor){op.AdaptiveMaxPool1dWithIndices, op.AdaptiveMaxPool2dWithIndices, op.AdaptiveMaxPool3dWithIndices}
	adaptiveAvg := []func(x *core.Tensor, s []int) *core.Tensor{op.AdaptiveAvgPool1d, op.AdaptiveAvgPool2d, op.AdaptiveAvgPool3d}
	for i, c := range poolCases() {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			nd := len(c.in)
			// Few distinct values, so that there are ties.
			r := rand.New(rand.NewPCG(uint64(i), 1))
			shape := append([]int{2, 3}, c.in...)
			v := make([]float64, core.Numel(shape))
			for i := range v {
				v[i] = float64(r.IntN(7)-3) / 4
			}
			x := core.FromSlice(v, shape...)
			ceil, exclude := r.IntN(2) == 0, r.IntN(2) == 0
			override := r.IntN(2) * 7
			var y, index, avg *core.Tensor
			if c.adaptive {
				y, index = adaptiveMax[nd-1](x, c.out)
				avg = adaptiveAvg[nd-1](x, c.out)
			} else {
				y, index = maxs[nd-1](x, c.kernel, op.MaxPoolOptions{Stride: c.stride, Padding: c.padding, Dilation: c.dilation, CeilMode: ceil})
				require.NoError(t, y.Err())
				for d := range nd {
					reach := (c.kernel[d]-1)*c.dilation[d] + 1
					n := float64(c.in[d]+2*c.padding[d]-reach) / float64(c.stride[d])
					c.out[d] = int(math.Floor(n)) + 1
					if ceil {
						c.out[d] = int(math.Ceil(n)) + 1
						if (c.out[d]-1)*c.stride[d] >= c.in[d]+c.padding[d] {
							c.out[d]--
						}
					}
				}
			}
			outShape := append([]int{2, 3}, c.out...)
			require.Equal(t, outShape, y.Shape())
			plane, results := core.Numel(c.in), core.Numel(c.out)
			wantMax, wantIndex := make([]float64, 6*results), make([]float64, 6*results)
			for p := range 6 {
				c.pool(func(o int, at []int, _ int) {
					best := -1
					for _, i := range at {
						if best < 0 || v[p*plane+i] > v[p*plane+best] {
							best = i
						}
					}
					wantMax[p*results+o] = math.Inf(-1) // dilation may step over a small input
					if best >= 0 {
						wantMax[p*results+o], wantIndex[p*results+o] = v[p*plane+best], float64(best)
					}
				})
			}
			require.Equal(t, wantMax, values(t, y))
			require.Equal(t, wantIndex, values(t, index))
			for _, d := range []core.DType{core.Float32, core.Float16, core.BFloat16} {
				xd := op.To(x, d)
				if c.adaptive {
					y, index = adaptiveMax[nd-1](xd, c.out)
				} else {
					y, index = maxs[nd-1](xd, c.kernel, op.MaxPoolOptions{Stride: c.stride, Padding: c.padding, Dilation: c.dilation, CeilMode: ceil})
				}
				require.Equal(t, d, y.DType())
				require.Equal(t, wantMax, values(t, y), d)
				require.Equal(t, wantIndex, values(t, index), d)
			}

			c.dilation = ones(nd)
			if !c.adaptive {
				avg = avgs[nd-1](x, c.kernel, op.AvgPoolOptions{Stride: c.stride, Padding: c.padding, CeilMode: ceil, ExcludePad: exclude, DivisorOverride: override})
				require.NoError(t, avg.Err())
				c.out = avg.Shape()[2:]
				results = core.Numel(c.out)
			}
			wantAvg := make([]float64, 6*results)
			for p := range 6 {
				c.pool(func(o int, at []int, size int) {
					s := 0.0
					for _, i := range at {
						s += v[p*plane+i]
					}
					switch {
					case override != 0 && !c.adaptive:
						size = override
					case exclude:
						size = len(at)
					}
					if len(at) > 0 {
						wantAvg[p*results+o] = s / float64(size)
					}
				})
			}
			requireValues(t, wantAvg, values(t, avg), 1e-14)
		})
	}
}

func TestMaxPoolOfNaN(t *testing.T) {
	nan := math.NaN()
	x := core.FromSlice([]float32{1, float32(nan), 3, 2, 5, 4, float32(math.Inf(-1)), float32(math.Inf(-1))}, 1, 8)
	y, index := op.MaxPool1dWithIndices(x, []int{2}, op.MaxPoolOptions{})
	got := values(t, y)
	require.True(t, math.IsNaN(got[0]))
	require.Equal(t, []float64{3, 5, math.Inf(-1)}, got[1:])
	require.Equal(t, []float64{1, 2, 4, 6}, values(t, index))
	require.True(t, math.IsNaN(values(t, op.MaxPool1d(x, []int{4}, op.MaxPoolOptions{}))[0]))
}

func TestMaxUnpoolUndoesMaxPool(t *testing.T) {
	x := core.FromSlice([]float64{1, 2, 3, 4, 8, 7, 6, 5, 9, 10, 12, 11}, 1, 3, 4)
	y, index := op.MaxPool2dWithIndices(x, []int{2}, op.MaxPoolOptions{})
	require.Equal(t, []float64{8, 6}, values(t, y))
	back := op.MaxUnpool2d(y, index, []int{2}, op.MaxUnpoolOptions{OutputSize: []int{3, 4}})
	require.NoError(t, back.Err())
	require.Equal(t, []float64{0, 0, 0, 0, 8, 0, 6, 0, 0, 0, 0, 0}, values(t, back))

	bad := op.MaxUnpool2d(y, core.FromSlice([]int64{0, 8}, 1, 1, 2), []int{2}, op.MaxUnpoolOptions{})
	_, err := core.Values[float64](bad)
	require.EqualError(t, err, "max_unpool2d: index 8 out of range for planes of 8 elements")
}

func TestLPPool(t *testing.T) {
	x := core.FromSlice([]float64{3, 4, -6, 8, 1}, 1, 5)
	requireValues(t, []float64{5, 10}, values(t, op.LPPool1d(x, 2, []int{2}, op.LPPoolOptions{})), 1e-12)
	require.EqualError(t, op.LPPool1d(x, 0, []int{2}, op.LPPoolOptions{}).Err(), "lp_pool1d: norm_type must not be 0")
}

func TestAvgPoolWithANegativeDivisor(t *testing.T) {
	x := leaf(core.FromSlice([]float32{1, 2, 3, 4}, 1, 1, 2, 2))
	y := op.AvgPool2d(x, []int{2}, op.AvgPoolOptions{DivisorOverride: -5})
	require.Equal(t, []float64{-2}, values(t, y))
	require.InDeltaSlice(t, []float64{-0.2, -0.2, -0.2, -0.2}, values(t, gradients(t, y, op.Ones(1, 1, 1, 1), x)[0]), 1e-7)
	for _, d := range []int{math.MinInt, math.MaxInt} {
		require.ErrorContains(t, op.AvgPool2d(x, []int{2}, op.AvgPoolOptions{DivisorOverride: d}).Err(), "must fit into 32 bits")
	}
}

func TestPoolingErrors(t *testing.T) {
	x := uniform(1, 2, 3, 4, 5)
	for want, got := range map[string]*core.Tensor{
		"max_pool2d: kernel_size is missing, want 1 or 2 entries":                                      op.MaxPool2d(x, nil, op.MaxPoolOptions{}),
		"max_pool2d: padding must be at most half of the kernel, got padding [2 2], kernel_size [3 3]": op.MaxPool2d(x, []int{3}, op.MaxPoolOptions{Padding: []int{2}}),
		"avg_pool2d: windows of [5 5] do not fit the input of shape [2 3 4 5] with padding [0 0]":      op.AvgPool2d(x, []int{5}, op.AvgPoolOptions{}),
		"avg_pool3d: input has shape [3 4 5], want 5 dimensions, or 4 without a batch":                 op.AvgPool3d(uniform(1, 3, 4, 5), []int{2}, op.AvgPoolOptions{}),
		"adaptive_avg_pool2d: output_size must be at least -1, got [-2]":                               op.AdaptiveAvgPool2d(x, []int{-2}),
		"adaptive_max_pool1d: input of shape [2 3 0] has nothing to pool":                              op.AdaptiveMaxPool1d(uniform(1, 2, 3, 0), []int{2}),
		"avg_pool1d: the input must be floating point, got int64":                                      op.AvgPool1d(core.FromSlice([]int64{1, 2}, 1, 1, 2), []int{2}, op.AvgPoolOptions{}),
		"max_unpool2d: output_size is [20 20], want sizes within [2 2] of 8 in dimension -2":           op.MaxUnpool2d(x, op.To(x, core.Int64), []int{2}, op.MaxUnpoolOptions{OutputSize: []int{20, 20}}),
		"max_pool2d: got a nil tensor":                                                                 op.MaxPool2d(nil, []int{2}, op.MaxPoolOptions{}),
	} {
		require.EqualError(t, got.Err(), want)
	}
}
