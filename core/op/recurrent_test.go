package op_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/cpu/gemm"
	"github.com/plait-ml/plait/core/op"
)

// TestRecurrentLayersOfBFloat16 compares layers whose states are of bfloat16 with float32's, on every instruction set. The
// sizes are cut along the batch and along the features, and fill tiles and leave some of them empty.
func TestRecurrentLayersOfBFloat16(t *testing.T) {
	for _, v := range []gemm.Variant{gemm.Baseline, gemm.AVX2, gemm.AVX512, gemm.AVX512BF16, gemm.AMX} {
		former, ok := gemm.Use(v)
		if !ok {
			continue
		}
		t.Cleanup(func() { gemm.Use(former) })
		for _, size := range [][2]int{{1, 20}, {3, 33}, {20, 40}, {70, 64}, {17, 300}} {
			for _, gates := range []int{4, 3} {
				for _, o := range []op.RecurrentOptions{{}, {Reverse: true}} {
					t.Run(fmt.Sprint(v, size, gates, o.Reverse), func(t *testing.T) {
						core.ManualSeed(uint64(size[1]))
						core.Tidy(func() { compareRecurrentDTypes(t, size[0], size[1], gates, o) })
					})
				}
			}
		}
	}
}

func compareRecurrentDTypes(t *testing.T, n, hidden, gates int, o op.RecurrentOptions) {
	scale := core.Num(1 / math.Sqrt(float64(hidden)))
	shapes := [][]int{{5, n, 7}, {n, hidden}, {gates * hidden, 7}, {gates * hidden, hidden}, {gates * hidden}, {gates * hidden}}
	if gates == 4 {
		shapes = append(shapes, []int{n, hidden})
	}
	low, wide := make([]*core.Tensor, len(shapes)), make([]*core.Tensor, len(shapes))
	for i, shape := range shapes {
		low[i] = op.To(op.Mul(op.Randn(shape...), scale), core.BFloat16).Detach()
		wide[i] = op.To(low[i], core.Float32).Detach().SetRequiresGrad(true)
		low[i].SetRequiresGrad(true)
	}
	run := func(x []*core.Tensor, twice bool) []*core.Tensor {
		var out []*core.Tensor
		if gates == 4 {
			y, h, c := op.LSTMLayer(x[0], x[1], x[6], x[2], x[3], x[4], x[5], o)
			out = []*core.Tensor{y, h, c}
		} else {
			y, h := op.GRULayer(x[0], x[1], x[2], x[3], x[4], x[5], o)
			out = []*core.Tensor{y, h}
		}
		grads, err := autograd.Grad(out, x, out, autograd.Options{CreateGraph: twice})
		require.NoError(t, err)
		return append(out, grads...)
	}
	want := run(wide, false)
	for _, twice := range []bool{false, true} {
		for i, got := range run(low, twice) {
			require.Equal(t, core.BFloat16, got.DType())
			far := op.Sub(op.To(got, core.Float32), want[i])
			norm := func(x *core.Tensor) float64 {
				x = op.Sqrt(op.Sum(op.Square(x), nil, false))
				require.NoError(t, x.Err())
				return values64(t, x)[0]
			}
			require.LessOrEqual(t, norm(far), 0.012*norm(want[i])+1e-6, "output %d", i)
		}
	}
}
