package op_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// The layer 16 -> 32 channels, 3x3, on 16 images of 32x32, forward and backward, with the gradients of input, weight
// and bias.
func BenchmarkConv2dStep(b *testing.B) {
	x := op.To(uniform(1, 16, 16, 32, 32), core.Float32).Detach().SetRequiresGrad(true)
	w := op.To(uniform(2, 32, 16, 3, 3), core.Float32).Detach().SetRequiresGrad(true)
	bias := op.To(uniform(3, 32), core.Float32).Detach().SetRequiresGrad(true)
	seed := op.Full([]int{16, 32, 32, 32}, core.Num(1), op.TensorOptions{})
	for b.Loop() {
		core.Tidy(func() {
			y := op.Conv2d(x, w, bias, op.ConvOptions{Padding: []int{1}})
			grads, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x, w, bias}, []*core.Tensor{seed}, autograd.Options{})
			if err != nil {
				b.Fatal(err)
			}
			for _, g := range grads {
				if err := g.Wait(); err != nil {
					b.Fatal(err)
				}
				g.Release()
			}
		})
	}
}

func BenchmarkPooling(b *testing.B) {
	x := op.To(uniform(1, 16, 64, 56, 56), core.Float32)
	grad := x.Detach().SetRequiresGrad(true)
	for name, f := range map[string]func(x *core.Tensor) *core.Tensor{
		"max 2x2": func(x *core.Tensor) *core.Tensor { return op.MaxPool2d(x, []int{2}, op.MaxPoolOptions{}) },
		"max 3x3/2": func(x *core.Tensor) *core.Tensor {
			return op.MaxPool2d(x, []int{3}, op.MaxPoolOptions{Stride: []int{2}, Padding: []int{1}})
		},
		"avg 2x2":    func(x *core.Tensor) *core.Tensor { return op.AvgPool2d(x, []int{2}, op.AvgPoolOptions{}) },
		"global avg": func(x *core.Tensor) *core.Tensor { return op.AdaptiveAvgPool2d(x, []int{1}) },
		"bilinear x2": func(x *core.Tensor) *core.Tensor {
			return op.Interpolate(x, op.InterpolateOptions{ScaleFactor: []float64{2}, Mode: "bilinear"})
		},
		"reflect 1": func(x *core.Tensor) *core.Tensor { return op.Pad(x, []int{1, 1, 1, 1}, op.PadOptions{Mode: "reflect"}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(4 * x.Numel()))
			for b.Loop() {
				core.Tidy(func() {
					if err := f(x).Wait(); err != nil {
						b.Fatal(err)
					}
				})
			}
		})
		b.Run(name+" with gradient", func(b *testing.B) {
			b.SetBytes(int64(4 * x.Numel()))
			for b.Loop() {
				core.Tidy(func() {
					y := f(grad)
					g, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{grad}, []*core.Tensor{y.Detach()}, autograd.Options{})
					if err != nil {
						b.Fatal(err)
					}
					if err := g[0].Wait(); err != nil {
						b.Fatal(err)
					}
					g[0].Release()
				})
			}
		})
	}
}
