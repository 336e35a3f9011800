package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// TestLayerNormGradients checks gradients of norms whose workgroups have several rows, with leftover rows, with some parameters
// that need no gradient, and with rows that 4 does not divide or that are too long for registers.
func TestLayerNormGradients(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	for _, c := range []struct {
		count, elements, vectors int
		shapes                   [][2]int
	}{
		{3, 80, 1, [][2]int{{1, 1}, {1, 8}, {38, 516}, {64, 3}, {37, 36}}},
		{3, 80, 2, [][2]int{{37, 36}}},
		{3, 80, 4, [][2]int{{38, 36}}},
	} {
		defer gpu.Tune(device(t), func(f *shader.Tuning) {
			f.Multiprocessors, f.NormElements, f.NormVectors = c.count, c.elements, c.vectors
		})()
		for _, shape := range c.shapes {
			core.Tidy(func() {
				rows, n := shape[0], shape[1]
				x, w, b := op.Randn(rows, n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true)
				compareWithCPU(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
					out := gradientsAndOutput(t, op.LayerNorm(x[0], []int{n}, x[1], x[2], 0.1), x...)
					if n != 36 {
						return out
					}
					out = append(out, gradientsAndOutput(t, op.RMSNorm(x[0], []int{n}, x[1], 0.1), x[:2]...)...)
					if c.vectors > 1 {
						return out
					}
					for _, few := range [][]*core.Tensor{{x[0], x[1]}, {x[0], x[2]}, {x[1], x[2]}, {x[0]}, {x[2]}} {
						out = append(out, gradientsAndOutput(t, op.LayerNorm(x[0], []int{n}, x[1], x[2], 0.1), few...)...)
					}
					return append(out, gradientsAndOutput(t, op.LayerNorm(x[0], []int{n}, nil, x[2], 0.1), x[0], x[2])...)
				}, x, w, b)
			})
		}
	}
}

// launch runs a kernel. Operands may be nil.
func launch(t *testing.T, name string, outs, ins []*core.Tensor, ints ...int64) {
	s := ins[0].Storage().Stream()
	c := s.Begin(core.Kernel(name), name)
	for _, o := range outs {
		c.Out(o)
	}
	for _, x := range ins {
		c.In(x)
	}
	s.Launch(c.Int(ints...))
	require.NoError(t, outs[0].Wait())
}

// TestLayerNormAccumulatesGradients checks that the kernel adds a gradient that has arrived from elsewhere to the input's
// gradient.
func TestLayerNormAccumulatesGradients(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for _, half := range []bool{false, true} {
		for _, shape := range [][2]int{{3, 5}, {1, 1}, {9, 260}, {1200, 12}} {
			t.Run(fmt.Sprint(shape, half), func(t *testing.T) {
				core.Tidy(func() {
					rows, n := shape[0], shape[1]
					there := func(shape ...int) *core.Tensor {
						x := op.Randn(shape...)
						if half {
							x = op.To(x, core.BFloat16)
						}
						return op.ToDevice(x, d)
					}
					x, g, w, arrived := there(rows, n), there(rows, n), there(n), there(rows, n)
					stats := op.ToDevice(op.Add(op.Rand(2, rows), core.Num(0.5)), d)
					for _, params := range [][]bool{{true, true}, {false, false}} {
						var outs [2][]*core.Tensor
						for i, more := range []*core.Tensor{nil, arrived} {
							outs[i] = []*core.Tensor{op.ZerosLike(x, op.TensorOptions{}), nil, nil}
							for j, requested := range params {
								if requested {
									outs[i][1+j] = op.ZerosLike(w, op.TensorOptions{})
								}
							}
							launch(t, "layer_norm_backward", outs[i], []*core.Tensor{x, g, w, stats, more}, int64(rows), int64(n), 0)
						}
						tolerance := 1e-6
						if half {
							tolerance = 1e-2
						}
						require.NoError(t, equal(t, op.Add(outs[0][0], arrived), outs[1][0], tolerance, "dx"))
						for j := 1; j < 3; j++ {
							if outs[0][j] != nil {
								require.NoError(t, equal(t, outs[0][j], outs[1][j], 0, "parameters"))
							}
						}
					}
				})
			})
		}
	}
}

// TestLayerNormGradientDispatches checks that the gradients of a norm take two dispatches, also if workgroups have many rows.
func TestLayerNormGradientDispatches(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x, w, b := on(d, 2500, 64).SetRequiresGrad(true), on(d, 64).SetRequiresGrad(true), on(d, 64).SetRequiresGrad(true)
		y := op.LayerNorm(x, []int{64}, w, b, 1e-5)
		g := on(d, 2500, 64)
		require.NoError(t, d.Synchronize())
		before := d.Traffic().Dispatches
		_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x, w, b}, []*core.Tensor{g}, autograd.Options{})
		require.NoError(t, err)
		require.NoError(t, d.Synchronize())
		require.Equal(t, 2, d.Traffic().Dispatches-before)
	})
}
