package op_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// normalNumbers returns normally distributed float32 numbers around a mean.
func normalNumbers(rng *rand.Rand, mean float64, shape ...int) *core.Tensor {
	v := make([]float32, core.Numel(shape))
	for i := range v {
		v[i] = float32(mean + rng.NormFloat64())
	}
	return op.Reshape(core.FromSlice(v, len(v)), shape...)
}

// rmsError returns the root of the mean square of what x differs from want by, over that of want.
func rmsError(x, want []float64) float64 {
	var e, s float64
	for i, w := range want {
		e += (x[i] - w) * (x[i] - w)
		s += w * w
	}
	return math.Sqrt(e / s)
}

// Long sums of float32 are as good as those of sums in blocks: the root of the mean square error of results and gradients against
// the same operation in float64 stays below a bound for each. One accumulator for the whole sum exceeds it.
func TestLongSumsAreAccurate(t *testing.T) {
	coretest.SkipUnderRace(t)
	convolution := func(padding, stride int) func(x ...*core.Tensor) *core.Tensor {
		return func(x ...*core.Tensor) *core.Tensor {
			return op.Conv2d(x[0], x[1], nil, op.ConvOptions{Padding: []int{padding, padding}, Stride: []int{stride, stride}})
		}
	}
	product := func(x ...*core.Tensor) *core.Tensor { return op.MatMul(x[0], x[1]) }
	attention := func(x ...*core.Tensor) *core.Tensor {
		return op.ScaledDotProductAttention(x[0], x[1], x[2], op.AttentionOptions{})
	}
	layer := func(x ...*core.Tensor) *core.Tensor { return op.LayerNorm(x[0], x[0].Shape()[1:], nil, nil, 1e-5) }
	affine := func(x ...*core.Tensor) *core.Tensor { return op.LayerNorm(x[0], x[0].Shape()[1:], x[1], x[2], 1e-5) }
	group := func(x ...*core.Tensor) *core.Tensor { return op.GroupNorm(x[0], 2, nil, nil, 1e-5) }
	batch := func(x ...*core.Tensor) *core.Tensor {
		return op.BatchNorm(x[0], nil, nil, nil, nil, true, 0.1, 1e-5)
	}
	variance := func(dim int) func(x ...*core.Tensor) *core.Tensor {
		return func(x ...*core.Tensor) *core.Tensor { return op.Var(x[0], []int{dim}, 1, false) }
	}
	pool := func(x ...*core.Tensor) *core.Tensor { return op.AdaptiveAvgPool2d(x[0], []int{1, 1}) }
	for _, c := range []struct {
		name          string
		f             func(x ...*core.Tensor) *core.Tensor
		mean          float64
		shapes        [][]int
		bound, slopes float64 // of the result, and of gradients; 0 is none
	}{
		{"convolution of 512 channels", convolution(1, 1), 0, [][]int{{1, 512, 4, 4}, {128, 512, 3, 3}}, 2.6e-7, 2.6e-7},
		{"convolution with strides", convolution(1, 2), 0, [][]int{{1, 256, 6, 6}, {64, 256, 3, 3}}, 2.6e-7, 2.6e-7},
		{"convolution of points", convolution(0, 1), 0, [][]int{{1, 2048, 4, 4}, {16, 2048, 1, 1}}, 2.6e-7, 2.6e-7},
		{"product", product, 0, [][]int{{48, 3000}, {3000, 64}}, 2.5e-7, 2.5e-7},
		{"deep product", product, 0, [][]int{{40, 9000}, {9000, 40}}, 2.7e-7, 2.5e-7},
		{"small product", product, 0, [][]int{{20, 1000}, {1000, 20}}, 2.5e-7, 2.5e-7},
		{"product of vectors", product, 0, [][]int{{2, 9000}, {9000, 3}}, 2.5e-7, 2.5e-7},
		{"attention over many keys", attention, 0, [][]int{{1, 1, 64, 32}, {1, 1, 2048, 32}, {1, 1, 2048, 32}}, 3e-7, 5e-7},
		{"attention of long rows", attention, 0, [][]int{{1, 1, 64, 256}, {1, 1, 64, 256}, {1, 1, 64, 256}}, 3.5e-7, 6e-7},
		{"layer norm", layer, 1000, [][]int{{16, 1024}}, 1e-7, 0},
		{"layer norm of short rows", layer, 1e4, [][]int{{64, 50}}, 3e-7, 0},
		{"layer norm of long rows", layer, 1e4, [][]int{{2, 20000}}, 5e-7, 0},
		{"group norm", group, 1e4, [][]int{{2, 6, 20, 20}}, 5e-7, 0},
		{"group norm of short rows", group, 1e4, [][]int{{40, 6, 5}}, 5e-7, 0},
		{"batch norm", batch, 1e4, [][]int{{4, 3, 20, 20}}, 5e-7, 0},
		{"batch norm of columns", batch, 1e4, [][]int{{300, 20}}, 5e-7, 0},
		{"layer norm with weights", affine, 10, [][]int{{32, 768}, {768}, {768}}, 3e-7, 4e-7},
		{"variance of rows", variance(1), 1e4, [][]int{{8, 20000}}, 1.2e-7, 0},
		{"variance of columns", variance(0), 1e4, [][]int{{20000, 8}}, 1.2e-7, 0},
		{"adaptive average", pool, 1, [][]int{{4, 4, 100, 100}}, 2e-7, 2e-7},
	} {
		t.Run(c.name, func(t *testing.T) {
			core.Tidy(func() {
				rng := rand.New(rand.NewPCG(31, 32))
				single, double := make([]*core.Tensor, len(c.shapes)), make([]*core.Tensor, len(c.shapes))
				for i, shape := range c.shapes {
					x := normalNumbers(rng, c.mean, shape...)
					single[i], double[i] = leaf(x), leaf(op.To(x, core.Float64))
				}
				got, want := c.f(single...), c.f(double...)
				require.LessOrEqual(t, rmsError(values(t, got), values(t, want)), c.bound)
				if c.slopes == 0 {
					return
				}
				weights := normalNumbers(rng, 0, got.Shape()...)
				exact := gradients(t, want, op.To(weights, core.Float64), double...)
				for i, g := range gradients(t, got, weights, single...) {
					require.LessOrEqual(t, rmsError(values(t, g), values(t, exact[i])), c.slopes, "gradient %d", i)
				}
			})
		})
	}
}

// Statistics of rows whose first elements say nothing about the rest.
func TestNormsOfRowsThatChange(t *testing.T) {
	for _, shape := range [][]int{{4, 5000}, {4, 40}, {4, 3, 50}, {3000, 4}} {
		n := core.Numel(shape)
		v := make([]float32, n)
		rng := rand.New(rand.NewPCG(33, 34))
		for i := range v {
			v[i] = float32(rng.NormFloat64())
			if i%(n/4) > n/50 {
				v[i] += 1e4
			}
		}
		x := op.Reshape(core.FromSlice(v, n), shape...)
		wide := op.To(x, core.Float64)
		for name, f := range map[string]func(x *core.Tensor) *core.Tensor{
			"layer": func(x *core.Tensor) *core.Tensor { return op.LayerNorm(x, shape[1:], nil, nil, 1e-5) },
			"batch": func(x *core.Tensor) *core.Tensor { return op.BatchNorm(x, nil, nil, nil, nil, true, 0.1, 1e-5) },
		} {
			require.LessOrEqual(t, rmsError(values(t, f(x)), values(t, f(wide))), 5e-7, "%s %v", name, shape)
		}
	}
}
