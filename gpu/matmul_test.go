package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// Every tile computes the same products, at sizes that it divides and at sizes that it does not.
func TestTilesAgree(t *testing.T) {
	d := device(t)
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	tiles := [][5]int{{32, 32, 16, 4, 4}}
	if !d.Software() {
		tiles = append(tiles, [][5]int{{64, 64, 16, 8, 4}, {128, 128, 16, 8, 8}}...)
	}
	for _, shape := range [][3]int{{65, 36, 52}, {33, 51, 35}, {64, 128, 32}} {
		m, n, k := shape[0], shape[1], shape[2]
		core.Tidy(func() {
			x, y := op.Randn(m, k), op.Randn(k, n)
			want, err := core.Values[float64](op.MatMul(x, y))
			require.NoError(t, err)
			a, b := op.ToDevice(x, d), op.ToDevice(y, d)
			at, bt := op.Transpose(op.ToDevice(op.Contiguous(op.Transpose(x, 0, 1)), d), 0, 1), op.Transpose(op.ToDevice(op.Contiguous(op.Transpose(y, 0, 1)), d), 0, 1)
			for _, s := range tiles {
				for _, double := range []bool{false, true} {
					func() {
						defer gpu.SetTiles(d, double, s[0], s[1], s[2], s[3], s[4])()
						for form, f := range map[string][2]*core.Tensor{"NN": {a, b}, "NT": {a, bt}, "TN": {at, b}, "TT": {at, bt}} {
							got, err := core.Values[float64](op.MatMul(f[0], f[1]))
							require.NoError(t, err)
							require.InDeltaSlice(t, want, got, 2e-3, fmt.Sprint(shape, s, double, form))
						}
						require.NoError(t, d.Synchronize())
					}()
				}
			}
		})
	}
}

// Products with a factor that is stored column by column, of which the device makes a copy, and copies that turn.
func TestTurnedFactorsAgree(t *testing.T) {
	core.Tidy(func() {
		x, y := op.Randn(1030, 65), op.Randn(67, 65)
		same(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.MatMul(x[0], op.Transpose(x[1], 0, 1)), op.MatMul(op.Reshape(x[0], 2, 515, 65), op.Transpose(x[1], 0, 1))}
		}, x, y)
	})
	core.Tidy(func() {
		x := op.Randn(3, 70, 5, 131)
		same(t, 0, func(x ...*core.Tensor) []*core.Tensor {
			return []*core.Tensor{
				op.Contiguous(op.Transpose(x[0], 1, 3)), op.Contiguous(op.Transpose(op.Slice(x[0], 3, 1, 130, 1), 1, 3)),
				op.Contiguous(op.Transpose(op.Reshape(x[0], 1050, 131), 0, 1)),
			}
		}, x)
	})
}

// Products of few results and a great depth, which is cut into many pieces.
func TestDeepProductsAgree(t *testing.T) {
	for _, depth := range []int{3000, 12345} {
		core.Tidy(func() {
			same(t, 1e-4, func(x ...*core.Tensor) []*core.Tensor {
				return []*core.Tensor{op.MatMul(x[0], x[1]), op.MatMul(x[0], op.Transpose(x[0], 0, 1))}
			}, op.Randn(5, depth), op.Randn(depth, 7))
		})
	}
}
