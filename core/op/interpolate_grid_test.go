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

// TestGridSampleGradients compares the kernel of the gradients with the sparse products that have derivatives, for channels in packs of all
// sizes.
func TestGridSampleGradients(t *testing.T) {
	core.ManualSeed(7)
	for _, size := range [][]int{{2, 3, 5, 7}, {1, 1, 4, 1}, {1, 8, 6, 5}, {2, 19, 3, 3}, {1, 2, 40, 50}, {1, 2, 3, 4, 5}, {1, 17, 2, 1, 3}, {0, 2, 3, 3}, {1, 0, 2, 2}} {
		k := len(size) - 2
		for _, points := range []int{0, 3, 300} {
			for _, d := range []core.DType{core.Float32, core.Float64} {
				x := op.To(op.Randn(size...), d)
				shape := append([]int{size[0], points}, make([]int, k)...)
				for i := 2; i <= k; i++ {
					shape[i] = 1
				}
				shape[k+1] = k
				grid := op.To(op.Randn(shape...), d)
				for _, mode := range []string{"bilinear", "nearest", "bicubic"} {
					for _, padding := range []string{"zeros", "border", "reflection"} {
						for _, align := range []bool{false, true} {
							if mode == "bicubic" && k == 3 {
								continue
							}
							o := op.GridSampleOptions{Mode: mode, PaddingMode: padding, AlignCorners: align}
							gradients := func(graph bool) (values []float64) {
								leaves := []*core.Tensor{x.Detach().SetRequiresGrad(true), grid.Detach().SetRequiresGrad(true)}
								y := op.GridSample(leaves[0], leaves[1], o)
								ones := []*core.Tensor{op.Mul(y.Detach(), core.Num(0.5))}
								grads, err := autograd.Grad([]*core.Tensor{y}, leaves, ones, autograd.Options{CreateGraph: graph})
								require.NoError(t, err)
								for _, g := range grads {
									v, err := core.Values[float64](op.To(g.Detach(), core.Float64))
									require.NoError(t, err)
									values = append(values, v...)
								}
								return values
							}
							want, got := gradients(true), gradients(false)
							require.Len(t, got, len(want))
							tolerance := map[core.DType]float64{core.Float32: 2e-3, core.Float64: 1e-11}[d]
							for i := range want {
								require.InDelta(t, want[i], got[i], tolerance*(1+math.Abs(want[i])), "%v %v %v %+v element %d", size, points, d, o, i)
							}
						}
					}
				}
			}
		}
	}
}

// TestGridSampleOutside: what lies outside counts for nothing, even beside an infinite element.
func TestGridSampleOutside(t *testing.T) {
	inf := math.Inf(1)
	x := core.FromSlice([]float64{inf, 1, 2, 3}, 1, 1, 2, 2)
	grid := core.FromSlice([]float64{5, 5, 1, 1, math.NaN(), 0}, 1, 1, 3, 2)
	got, err := core.Values[float64](op.GridSample(x, grid, op.GridSampleOptions{}))
	require.NoError(t, err)
	require.Equal(t, "[0 0.75 NaN]", fmt.Sprint(got))
}

// TestGridSampleOfNaN has what PyTorch makes of places that are not numbers: where there is padding, the first element along their dimension of
// an image and the last of a volume; where there is none, NaN in images, nothing in volumes. Images get no gradient from NaN.
func TestGridSampleOfNaN(t *testing.T) {
	nan := math.NaN()
	image := core.FromSlice([]float64{1, 2, 3, 4}, 1, 1, 2, 2)
	volume := core.FromSlice([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 1, 1, 2, 2, 2)
	places := core.FromSlice([]float64{nan, 0.5, 0, nan, nan, nan, 0.5, 0.5}, 1, 1, 4, 2)
	inside := core.FromSlice([]float64{nan, 0.5, 0.5, 0, nan, 0, 0.5, 0.5, 0.5}, 1, 1, 1, 3, 3)
	for _, c := range []struct {
		x, grid       *core.Tensor
		padding, want string
	}{
		{image, places, "zeros", "[NaN NaN NaN 4]"}, {image, places, "border", "[3 1.5 1 4]"}, {image, places, "reflection", "[3 1.5 1 4]"},
		{volume, inside, "zeros", "[0 0 8]"}, {volume, inside, "border", "[8 5.5 8]"}, {volume, inside, "reflection", "[8 5.5 8]"},
	} {
		for _, graph := range []bool{false, true} {
			x := op.Clone(c.x).SetRequiresGrad(graph)
			y := op.GridSample(x, c.grid, op.GridSampleOptions{PaddingMode: c.padding})
			got, err := core.Values[float64](y.Detach())
			require.NoError(t, err)
			require.Equal(t, c.want, fmt.Sprint(got), "%s of %v, graph: %v", c.padding, c.x.Shape(), graph)
			if graph {
				require.NoError(t, autograd.Backward(op.NanSum(y, nil, false)))
				total, err := core.Values[float64](op.Sum(x.Grad(), nil, false))
				require.NoError(t, err)
				require.False(t, math.IsNaN(total[0]), "%s of %v", c.padding, c.x.Shape())
			}
		}
	}
}
