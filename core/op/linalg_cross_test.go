package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestCrossProducts compares with the definition, along inner and outer dimensions, in every floating dtype.
func TestCrossProducts(t *testing.T) {
	core.ManualSeed(8)
	core.Tidy(func() {
		for _, d := range []core.DType{core.Float64, core.Float32, core.Float16, core.BFloat16} {
			for _, c := range []struct {
				x, y []int
				dim  int
			}{{[]int{100, 3}, []int{100, 3}, -1}, {[]int{3, 70}, []int{3, 1}, 0}, {[]int{2, 3, 5}, []int{3, 1}, 1}, {[]int{3}, []int{4, 3}, -1}, {[]int{0, 3}, []int{3}, 1}} {
				x, y := op.To(op.Randn(c.x...), d), op.To(op.Randn(c.y...), d)
				z := op.Cross(x, y, c.dim)
				require.Equal(t, d, z.DType())
				shape, dim := z.Shape(), (c.dim+z.Dim())%z.Dim()
				part := func(t *core.Tensor, i int) *core.Tensor {
					return op.Select(op.Expand(op.To(t, core.Float64), shape...), dim, i%3)
				}
				for i := range 3 {
					want := op.Sub(op.Mul(part(x, i+1), part(y, i+2)), op.Mul(part(x, i+2), part(y, i+1)))
					w, g := values(t, want), values(t, part(z, i))
					tolerance := map[core.DType]float64{core.Float64: 1e-14, core.Float32: 2e-6, core.Float16: 1e-2, core.BFloat16: 1e-1}[d]
					for k := range w {
						require.InDelta(t, w[k], g[k], tolerance, "%v %v component %d", d, c, i)
					}
				}
				if z.Numel() > 0 {
					for _, v := range values(t, op.To(op.Cross(x, x, c.dim), core.Float64)) {
						require.Zero(t, v, "a vector and itself")
					}
				}
			}
		}
	})
}
