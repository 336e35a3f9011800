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
