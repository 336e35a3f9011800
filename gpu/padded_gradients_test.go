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

// linearLoss returns the cross entropy of a linear layer, and its scores. With deep, the input keeps its three dimensions in the
// layer.
func linearLoss(x, w, bias, target *core.Tensor, o op.CrossEntropyOptions, deep bool) (loss, scores *core.Tensor) {
	if !deep {
		scores = op.Linear(op.Reshape(x, -1, x.Size(-1)), w, bias)
		return op.CrossEntropy(scores, target, o), scores
	}
	scores = op.Linear(x, w, bias)
	return op.CrossEntropy(op.View(scores, -1, scores.Size(-1)), target, o), scores
}

// fillFreeMemoryWithNaN leaves NaN in free memory, so that reads of padding show.
func fillFreeMemoryWithNaN(d core.Device, elements int) {
	f := core.Float32
	x := op.FullLike(op.EmptyWith([]int{elements}, op.TensorOptions{DType: &f, Device: d}), core.Num(math.NaN()), op.TensorOptions{})
	x.Release()
}

// paddedGradient returns the gradient of the scores as a loss passes it to a product's derivative: with padded rows.
func paddedGradient(t testing.TB, loss *core.Tensor) *core.Tensor {
	e := loss.AutogradMeta().Edge()
	defer e.Node.Release()
	ctx := core.NewBackwardContext(core.CurrentMode().WithGrad(false), e.Node, []*core.Tensor{op.OnesLike(loss, op.TensorOptions{})}, nil)
	ctx.Returns(func(core.Edge) bool { return false })
	g, err := ctx.Run()
	require.NoError(t, err)
	return g[0]
}

func TestPaddedGradients(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for _, classes := range []int{1020, 1025, 1026, 1027} {
		t.Run(fmt.Sprint(classes), func(t *testing.T) {
			core.Tidy(func() {
				const texts, tokens, width = 3, 7, 20
				leaf := func(shape ...int) *core.Tensor { return op.Randn(shape...).SetRequiresGrad(true) }
				target := op.Remainder(op.Arange(nil, core.IntNum(texts*tokens), nil, op.TensorOptions{}), core.IntNum(int64(classes)))
				probabilities := op.Softmax(op.Randn(texts*tokens, classes), 1)
				// The gradient of target probabilities that a product has computed is padded too.
				linear := func(x, w *core.Tensor) *core.Tensor { return op.Linear(op.Reshape(x, texts*tokens, width), w, nil) }
				stride := classes
				if classes > 1024 {
					stride = (classes + 3) / 4 * 4
				}
				for _, o := range []op.CrossEntropyOptions{{}, {LabelSmoothing: 0.1, Reduction: "sum"}} {
					compareWithCPU(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
						g, err := autograd.Grad([]*core.Tensor{op.CrossEntropy(linear(x[0], x[1]), linear(x[0], x[1]), o)}, x[:2], nil, autograd.Options{})
						require.NoError(t, err)
						out := g
						for _, deep := range []bool{false, true} {
							for _, target := range x[3:] {
								on := x[0].Device()
								loss, scores := linearLoss(x[0], x[1], x[2], target, o, deep)
								if on == core.Device(d) {
									fillFreeMemoryWithNaN(d, texts*tokens*stride)
									require.Equal(t, []int{stride, 1}, paddedGradient(t, loss).Strides())
									fillFreeMemoryWithNaN(d, texts*tokens*stride)
								} else {
									require.Equal(t, []int{classes, 1}, paddedGradient(t, loss).Strides())
								}
								g, err := autograd.Grad([]*core.Tensor{loss}, x[:3], nil, autograd.Options{RetainGraph: true})
								require.NoError(t, err)
								again, err := autograd.Grad([]*core.Tensor{loss}, x[:1], nil, autograd.Options{CreateGraph: true})
								require.NoError(t, err)
								twice, err := autograd.Grad([]*core.Tensor{op.Sum(op.Mul(again[0], again[0]), nil, false)}, x[1:2], nil, autograd.Options{RetainGraph: true})
								require.NoError(t, err)
								out = append(out, append(append(g, twice...), loss)...)
								// Padded and contiguous gradients are added.
								for _, terms := range [][2]*core.Tensor{{loss, op.Mean(op.Mul(scores, scores), nil, false)}, {op.Mean(op.Exp(scores), nil, false), loss}} {
									g, err := autograd.Grad([]*core.Tensor{op.Add(terms[0], terms[1])}, x[:3], nil, autograd.Options{RetainGraph: true})
									require.NoError(t, err)
									out = append(out, g...)
								}
							}
						}
						return out
					}, leaf(texts, tokens, width), leaf(classes, width), leaf(classes), target, probabilities)
				}
			})
		})
	}
}

// TestVisibleGradientsAreContiguous checks that a gradient of scores that the caller can see is contiguous.
func TestVisibleGradientsAreContiguous(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		const classes = 1025
		leaf := func(shape ...int) *core.Tensor {
			return op.ToDevice(op.Randn(shape...), d).Detach().SetRequiresGrad(true)
		}
		target := op.ToDevice(op.Arange(nil, core.IntNum(6), nil, op.TensorOptions{}), d)
		x, w := leaf(2, 3, 8), leaf(classes, 8)
		for _, deep := range []bool{false, true} {
			loss, scores := linearLoss(x, w, nil, target, op.CrossEntropyOptions{}, deep)
			g, err := autograd.Grad([]*core.Tensor{loss}, []*core.Tensor{scores, x}, nil, autograd.Options{RetainGraph: true})
			require.NoError(t, err)
			require.True(t, g[0].Contiguous(), "returned")
			require.NoError(t, autograd.Backward(loss))
			require.True(t, w.Grad().Contiguous(), "of a leaf")
			w.SetGrad(nil)

			loss, scores = linearLoss(x, w, nil, target, op.CrossEntropyOptions{}, deep)
			scores.RetainGrad()
			require.NoError(t, autograd.Backward(loss))
			require.True(t, scores.Grad().Contiguous(), "kept")
			require.NoError(t, equal(t, g[0], scores.Grad(), 0, "kept"))

			loss, scores = linearLoss(x, w, nil, target, op.CrossEntropyOptions{}, deep)
			seen := 0
			scores.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
				require.True(t, g.Contiguous(), "given to a hook")
				seen++
				return nil
			}})
			require.NoError(t, autograd.Backward(loss))
			require.Equal(t, 1, seen)

			loss, _ = linearLoss(x, w, nil, target, op.CrossEntropyOptions{}, deep)
			e := loss.AutogradMeta().Edge()
			e.Node.PostHooks().Add(core.NodeHook{Fn: func(g, _ []*core.Tensor) []*core.Tensor {
				require.True(t, g[0].Contiguous(), "given to a hook on the loss")
				seen++
				return nil
			}})
			e.Node.Release()
			require.NoError(t, autograd.Backward(loss))
			require.Equal(t, 2, seen)
		}
		scores := leaf(6, classes)
		require.NoError(t, autograd.Backward(op.CrossEntropy(scores, target, op.CrossEntropyOptions{})))
		require.True(t, scores.Grad().Contiguous(), "of a leaf of scores")
		through := op.Mul(scores, core.Num(2))
		require.Equal(t, []int{classes, 1}, paddedGradient(t, op.CrossEntropy(through, target, op.CrossEntropyOptions{})).Strides(), "no product")
	})
}

// TestPaddedGradientsLeakNoMemory checks that backward frees all memory of padded rows.
func TestPaddedGradientsLeakNoMemory(t *testing.T) {
	d := device(t)
	const rows, classes = 4096, 1025
	used := func() int {
		require.NoError(t, d.Synchronize())
		return core.MemoryUsage(d).Current
	}
	core.Tidy(func() {
		x := op.ToDevice(op.Randn(rows, 4), d).Detach().SetRequiresGrad(true)
		w := op.ToDevice(op.Randn(classes, 4), d).Detach().SetRequiresGrad(true)
		target := op.ToDevice(op.Remainder(op.Arange(nil, core.IntNum(rows), nil, op.TensorOptions{}), core.IntNum(classes)), d)
		before := used()
		core.Tidy(func() {
			loss, scores := linearLoss(x, w, nil, target, op.CrossEntropyOptions{}, false)
			scores.Release()
			start := used()
			g := paddedGradient(t, loss)
			require.Equal(t, 4*rows*(classes+3), g.Storage().Size())
			require.GreaterOrEqual(t, used()-start, 4*rows*(classes+3))
			require.Less(t, used()-start, 4*rows*(classes+3)+4096)
		})
		require.Equal(t, before, used())
	})
}
