package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestCDistOfManyRows compares distances that are computed from products, or in parts, and their gradients with the norms of all
// differences.
func TestCDistOfManyRows(t *testing.T) {
	coretest.SkipUnderRace(t)
	core.Tidy(func() {
		d := core.Float64
		for _, c := range []struct {
			x, y []int
			p    float64
		}{
			{[]int{40, 5}, []int{3, 5}, 2}, {[]int{2, 1, 6, 3}, []int{3, 30, 3}, 2}, {[]int{30, 1100}, []int{150, 1100}, 1}, {[]int{2, 20, 700}, []int{160, 700}, 3},
			{[]int{20, 900}, []int{250, 900}, math.Inf(1)}, {[]int{20, 900}, []int{250, 900}, 0},
		} {
			x, y := op.To(op.Randn(c.x...), d).SetRequiresGrad(true), op.To(op.Randn(c.y...), d).SetRequiresGrad(true)
			got := op.CDist(x, y, c.p, op.CDistOptions{})
			want := op.VectorNorm(op.Sub(op.Unsqueeze(x, -2), op.Unsqueeze(y, -3)), c.p, []int{-1}, op.ReduceOptions{})
			requireClose(t, want, got)
			g := op.To(op.Randn(want.Shape()...), d)
			theirs, err := autograd.Grad([]*core.Tensor{want}, []*core.Tensor{x, y}, []*core.Tensor{g}, autograd.Options{})
			require.NoError(t, err)
			ours, err := autograd.Grad([]*core.Tensor{got}, []*core.Tensor{x, y}, []*core.Tensor{g}, autograd.Options{})
			require.NoError(t, err)
			requireClose(t, theirs[0], ours[0])
			requireClose(t, theirs[1], ours[1])
		}
	})
}

// TestCDistOfEqualRows checks that a distance of 0 has the gradient 0, and that gradients of gradients are finite.
func TestCDistOfEqualRows(t *testing.T) {
	core.Tidy(func() {
		x := op.Reshape(op.Arange(nil, core.Num(60), nil, op.TensorOptions{}), 30, 2).SetRequiresGrad(true)
		y := op.CDist(x, x, 2, op.CDistOptions{})
		g, err := autograd.Grad([]*core.Tensor{op.Sum(y, nil, false)}, []*core.Tensor{x}, nil, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		for _, v := range values(t, g[0]) {
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0))
		}
	})
}

func requireClose(t *testing.T, want, got *core.Tensor) {
	t.Helper()
	require.Equal(t, want.Shape(), got.Shape())
	w, g := values(t, want), values(t, got)
	for i := range w {
		require.InDelta(t, w[i], g[i], 1e-9*(1+math.Abs(w[i])), "element %d", i)
	}
}

// TestDistancesOfNaN: the largest of differences is that of those that are numbers for cdist, and NaN for pdist. Gradients of sums and largest
// differences are NaN where a difference is; those of other orders everywhere. The numbers are PyTorch's.
func TestDistancesOfNaN(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		x, z []float64
		p, y float64
		grad []float64
	}{
		{[]float64{1, nan, 2}, []float64{0, 0, 4}, 1, nan, []float64{1, nan, -1}},
		{[]float64{0, nan, 2}, []float64{0, 0, 4}, 1, nan, []float64{0, nan, -1}},
		{[]float64{inf, 1, 2}, []float64{inf, 0, inf}, 1, nan, []float64{nan, 1, -1}},
		{[]float64{1, nan, 2}, []float64{0, 0, 4}, 3, nan, []float64{nan, nan, nan}},
		{[]float64{nan, -3, 2}, []float64{0, 0, 4}, inf, 3, []float64{nan, -1, 0}},
		{[]float64{nan, nan, nan}, []float64{0, 0, 4}, inf, 0, []float64{nan, nan, nan}},
		{[]float64{inf, 1, 2}, []float64{0, 0, 4}, inf, inf, []float64{nan, 0, 0}},
		{[]float64{1, 2, -2}, []float64{0, 0, 0}, inf, 2, []float64{0, 1, -1}},
		{[]float64{1, 1, 1}, []float64{1, 1, 1}, inf, 0, []float64{0, 0, 0}},
	} {
		for _, wide := range []int{1, 200} { // in one block of features, or several
			x := op.Repeat(core.FromSlice(c.x, 1, 3), 1, wide).SetRequiresGrad(true)
			z := op.Repeat(core.FromSlice(c.z, 1, 3), 1, wide)
			y := op.CDist(x, z, c.p, op.CDistOptions{})
			requireElements(t, []float64{c.y}, y)
			require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
			requireElements(t, c.grad, op.Narrow(op.Reshape(x.Grad(), wide, 3), 0, wide-1, 1))
		}
	}
	x := core.FromSlice([]float64{1, nan, 0, 0}, 2, 2).SetRequiresGrad(true)
	y := op.PDist(x, inf)
	requireElements(t, []float64{nan}, y)
	require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
	requireElements(t, []float64{nan, nan, nan, nan}, x.Grad())
}

// TestLargestDifferencesThatAreEqual: each has the whole gradient, as in PyTorch.
func TestLargestDifferencesThatAreEqual(t *testing.T) {
	x := core.FromSlice([]float64{0, 1, 2, 1, 2, 2, 2, 2, 2}, 3, 3).SetRequiresGrad(true)
	y := op.PDist(x, math.Inf(1))
	requireElements(t, []float64{1, 2, 1}, y)
	require.NoError(t, autograd.Backward(op.Sum(op.Mul(y, vector64(1, 2, 3)), nil, false)))
	requireElements(t, []float64{-3, -1, 0, -2, 1, 0, 5, 0, 0}, x.Grad())
}
