package op_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestDistancesOfPairsAreNorms compares with the norms of differences, for numbers of rows and features around the sizes of blocks.
func TestDistancesOfPairsAreNorms(t *testing.T) {
	core.ManualSeed(5)
	for _, size := range [][3]int{{1, 1, 1}, {3, 5, 2}, {5, 17, 130}, {131, 18, 3}, {130, 33, 129}} {
		n, k, m := size[0], size[1], size[2]
		for _, d := range []core.DType{core.Float32, core.Float64, core.BFloat16} {
			for _, p := range []float64{0, 1, 2, 2.5, math.Inf(1)} {
				x, y := op.To(op.Randn(2, n, m), d), op.To(op.Randn(k, m), d)
				wide := func(t *core.Tensor) *core.Tensor { return op.To(t, core.Float64) }
				norms := func(x, y *core.Tensor) *core.Tensor {
					return op.VectorNorm(op.Sub(op.Unsqueeze(wide(x), -2), op.Unsqueeze(wide(y), -3)), p, []int{-1}, op.ReduceOptions{})
				}
				close := func(want, got *core.Tensor, what string) {
					t.Helper()
					w, err := core.Values[float64](want)
					require.NoError(t, err)
					g, err := core.Values[float64](wide(got))
					require.NoError(t, err)
					require.Len(t, g, len(w))
					tolerance := map[core.DType]float64{core.Float32: 1e-5, core.Float64: 1e-12, core.BFloat16: 1e-2}[d]
					for i := range w {
						require.InDelta(t, w[i], g[i], tolerance*(1+w[i]), "%s %v %v p=%v element %d", what, size, d, p, i)
					}
				}
				close(norms(x, y), op.CDist(x, y, p, op.CDistOptions{}), "cdist")
				above := op.Triu(op.Full([]int{n, n}, core.BoolNum(true), op.TensorOptions{}), 1)
				close(op.MaskedSelect(norms(x, x), op.Expand(above, 2, n, n)), op.Ravel(op.PDist(x, p)), "pdist")
			}
		}
	}
}

func TestDistancesWithNaN(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	x := core.FromSlice([]float64{nan, 1, 2, inf, 0, 0}, 3, 2)
	for _, p := range []float64{0, 1, 2, 3, inf} {
		got, err := core.Values[float64](op.PDist(x, p))
		require.NoError(t, err)
		want := "[NaN NaN +Inf]"
		if p == 0 {
			want = "[NaN NaN 2]" // how many elements differ
		}
		require.Equal(t, want, fmt.Sprint(got), "p=%v", p)
	}
	_, err := core.Values[float64](op.PDist(x, -1))
	require.ErrorContains(t, err, "the norm's order must not be negative, got -1")
}

// TestDistanceComputeModes looks for what tells the ways apart: infinite elements, and rows that are close to each other.
func TestDistanceComputeModes(t *testing.T) {
	far := op.Add(op.Full([]int{2, 3}, core.Num(1000), op.TensorOptions{}), op.Mul(op.Eye(2, 3, op.TensorOptions{}), core.Num(1e-3)))
	infinite := core.FromSlice([]float32{float32(math.Inf(1)), 0, 0, 0}, 2, 2)
	values := func(x *core.Tensor, mode string) string {
		v, err := core.Values[float32](op.CDist(x, x, 2, op.CDistOptions{ComputeMode: mode}))
		require.NoError(t, err)
		return fmt.Sprintf("%.4f", v)
	}
	const exact, products, either = "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist", "use_mm_for_euclid_dist_if_necessary"
	require.Equal(t, "[0.0000 0.0014 0.0014 0.0000]", values(far, exact))
	require.NotEqual(t, values(far, exact), values(far, products))
	require.Equal(t, values(far, exact), values(far, either))
	many := op.Repeat(far, 13, 1)
	require.NotEqual(t, values(many, exact), values(many, either))
	require.Equal(t, values(many, products), values(many, either))
	require.Equal(t, "[NaN +Inf +Inf 0.0000]", values(infinite, exact))
	_, err := core.Values[float32](op.CDist(far, far, 2, op.CDistOptions{ComputeMode: "fast"}))
	require.ErrorContains(t, err, "cdist: compute_mode must be one of use_mm_for_euclid_dist_if_necessary, use_mm_for_euclid_dist")
}

// TestGradientsOfDistances compares the kernel with what is recorded to be differentiated again, for numbers of rows and features around the
// sizes of its blocks, equal rows, and gradients of unusual strides.
func TestGradientsOfDistances(t *testing.T) {
	core.ManualSeed(6)
	for _, size := range [][3]int{{1, 1, 1}, {3, 5, 2}, {17, 4, 66}, {33, 130, 5}, {16, 150, 64}} {
		n, k, m := size[0], size[1], size[2]
		for _, d := range []core.DType{core.Float32, core.Float64, core.BFloat16} {
			for _, p := range []float64{0, 0.5, 1, 2, 3, math.Inf(1)} {
				x, y := op.To(op.Randn(2, 1, n, m), d), op.To(op.Randn(3, k, m), d)
				op.CopyInPlace(op.Select(x, 2, 0), op.Narrow(op.Select(y, 1, 0), 0, 0, 1))
				compare := func(what string, g *core.Tensor, fn func(xs []*core.Tensor) *core.Tensor, xs ...*core.Tensor) {
					t.Helper()
					tolerance := map[core.DType]float64{core.Float32: 2e-5, core.Float64: 1e-11, core.BFloat16: 5e-2}[d]
					wide := core.Float64
					if math.IsInf(p, 1) {
						wide = d // which differences equal the largest depends on the dtype
					}
					ours, theirs := pairGradients(t, fn, g, xs, d, false), pairGradients(t, fn, g, xs, wide, true)
					for i := range xs {
						require.Equal(t, theirs[i].Shape(), ours[i].Shape())
						want, got := values(t, op.To(theirs[i], core.Float64)), values(t, op.To(ours[i], core.Float64))
						largest := 1.0 // what small differences are summed with, if p is below 1
						for _, v := range want {
							largest = max(largest, math.Abs(v))
						}
						for e := range want {
							require.InDelta(t, want[e], got[e], tolerance*largest, "%s %v %v p=%v input %d element %d", what, size, d, p, i, e)
						}
					}
				}
				all := func(xs []*core.Tensor) *core.Tensor { return op.CDist(xs[0], xs[1], p, op.CDistOptions{}) }
				compare("cdist", op.Transpose(op.To(op.Randn(2, 3, k, n), d), -2, -1), all, x, y)
				compare("cdist of one batch", op.Expand(op.To(op.Randn(3, n, 1), d), 3, n, k), all, op.Select(x, 0, 0), y)
				later := func(xs []*core.Tensor) *core.Tensor { return op.PDist(xs[0], p) }
				compare("pdist", op.Expand(op.To(op.Randn(3, 1), d), 3, k*(k-1)/2), later, y)
				compare("pdist of no batch", op.To(op.Randn(k*(k-1)/2), d), later, op.Select(y, 0, 1))
			}
		}
	}
}

// pairGradients returns the gradients of fn at copies of xs in dtype d. In halves what is recorded would round each step.
func pairGradients(t *testing.T, fn func(xs []*core.Tensor) *core.Tensor, g *core.Tensor, xs []*core.Tensor, d core.DType, recorded bool) []*core.Tensor {
	t.Helper()
	inputs := make([]*core.Tensor, len(xs))
	for i, x := range xs {
		inputs[i] = op.To(x, d).Detach().SetRequiresGrad(true)
	}
	grads, err := autograd.Grad([]*core.Tensor{fn(inputs)}, inputs, []*core.Tensor{op.To(g, d)}, autograd.Options{CreateGraph: recorded})
	require.NoError(t, err)
	return grads
}
