package gpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestPoolsOfLargeWindows compares pools whose windows are shared by a workgroup, or are whole planes, with the CPU.
func TestPoolsOfLargeWindows(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	for _, dtype := range []core.DType{core.Float32, core.BFloat16} {
		for _, shape := range [][]int{{2, 3, 23, 17}, {1, 2, 64, 48}} {
			t.Run(fmt.Sprint(shape, dtype), func(t *testing.T) {
				core.Tidy(func() {
					x := op.To(op.Randn(shape...), dtype).SetRequiresGrad(true)
					tolerance := 2e-6
					if dtype != core.Float32 {
						tolerance = 1e-2
					}
					compareWithCPU(t, tolerance, func(x ...*core.Tensor) []*core.Tensor {
						largest, where := op.MaxPool2dWithIndices(x[0], []int{11, 9}, op.MaxPoolOptions{Stride: []int{3}, Padding: []int{5, 2}})
						one, place := op.AdaptiveMaxPool2dWithIndices(x[0], []int{1, 2})
						out := []*core.Tensor{
							op.AdaptiveAvgPool2d(x[0], []int{1}), op.AdaptiveAvgPool2d(x[0], []int{2, 1}), op.AdaptiveAvgPool2d(x[0], []int{3, 20}),
							op.AvgPool2d(x[0], []int{9, 8}, op.AvgPoolOptions{Stride: []int{5, 1}, Padding: []int{4}, CeilMode: true, ExcludePad: true}),
							op.AvgPool2d(x[0], []int{10, 9}, op.AvgPoolOptions{Padding: []int{2}, DivisorOverride: 7}), largest, one,
						}
						var seeds []*core.Tensor
						for _, y := range out {
							seeds = append(seeds, op.OnesLike(y, op.TensorOptions{}))
						}
						grads, err := autograd.Grad(out, x, seeds, autograd.Options{})
						require.NoError(t, err)
						return append(append(out, where, place), grads...)
					}, x)
				})
			})
		}
	}
	// The first of equal elements is the maximum, and the last NaN.
	v := make([]float32, 2*100)
	v[7], v[9], v[130], v[150] = float32(math.NaN()), float32(math.NaN()), 1, 1
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
		y, i := op.MaxPool2dWithIndices(x[0], []int{10}, op.MaxPoolOptions{})
		z, j := op.MaxPool2dWithIndices(op.To(op.NanToNum(x[0], 5, nil, nil), core.Int64), []int{10}, op.MaxPoolOptions{})
		return []*core.Tensor{y, i, z, j}
	}, core.FromSlice(v, 1, 2, 10, 10))
}
