package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestComplexNumbers compares what is done to complex numbers, and its gradients, with the CPU.
func TestComplexNumbers(t *testing.T) {
	device(t)
	complexes := func(shape ...int) *core.Tensor {
		return op.RandnWith(shape, op.RandomOptions{DType: new(core.Complex64)}).SetRequiresGrad(true)
	}
	for name, fn := range map[string]func(x, y *core.Tensor) *core.Tensor{
		"arithmetic": func(x, y *core.Tensor) *core.Tensor {
			return op.Div(op.Sub(op.Mul(x, y), op.Real(x)), op.Add(y, core.Num(3)))
		},
		"functions": func(x, y *core.Tensor) *core.Tensor { return op.Mul(op.Exp(op.Tanh(x)), op.Sqrt(op.Conj(y))) },
		"real":      func(x, y *core.Tensor) *core.Tensor { return op.Mul(op.Abs(x), op.Angle(y)) },
		"products":  func(x, y *core.Tensor) *core.Tensor { return op.MatMul(x, op.Transpose(y, 0, 1)) },
		"sums": func(x, y *core.Tensor) *core.Tensor {
			return op.Cat([]*core.Tensor{op.Sum(x, []int{0}, true), op.CumSum(y, 1)}, 0)
		},
		"moves": func(x, y *core.Tensor) *core.Tensor {
			index := op.ToDevice(core.FromSlice([]int64{4, 0, 4}), x.Device())
			return op.Add(op.IndexSelect(op.Flip(x, []int{1}), 0, index), op.Narrow(op.Roll(y, []int{1}, []int{1}), 0, 1, 3))
		},
		"masks": func(x, y *core.Tensor) *core.Tensor { return op.Where(op.Gt(op.Real(x), op.Imag(y)), x, y) },
		"in place": func(x, y *core.Tensor) *core.Tensor {
			z := op.Clone(x)
			op.MulInPlace(op.Narrow(z, 1, 1, 2), op.Narrow(y, 1, 0, 2))
			op.CopyInPlace(op.Imag(z), op.Real(y))
			return z
		},
	} {
		t.Run(name, func(t *testing.T) {
			core.Tidy(func() {
				compareWithCPU(t, 1e-4, func(x ...*core.Tensor) []*core.Tensor {
					y := fn(x[0], x[1])
					g, err := autograd.Grad([]*core.Tensor{op.Sum(op.Square(op.Abs(y)), nil, false)}, x, nil, autograd.Options{AllowUnused: true})
					require.NoError(t, err)
					out := []*core.Tensor{parts(y)}
					for _, v := range g {
						out = append(out, parts(v))
					}
					return out
				}, complexes(5, 7), complexes(5, 7))
			})
		})
	}
}

func parts(x *core.Tensor) *core.Tensor {
	if x.DType().IsComplex() {
		return op.ViewAsReal(x.Detach())
	}
	return x
}
