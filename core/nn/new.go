package nn

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A filler overwrites a new tensor with its first values: one of the functions that begin with Init.
type filler func(t *core.Tensor) *core.Tensor

// newParameter returns a leaf that requires a gradient; its memory is counted as a parameter's.
func newParameter(fill filler, shape ...int) *core.Tensor {
	t := newTensor(core.Parameter, fill, shape)
	if t.Err() != nil {
		return t
	}
	return t.SetRequiresGrad(true)
}

// newBuffer returns a tensor that is not trained.
func newBuffer(fill filler, shape ...int) *core.Tensor { return newTensor(core.Buffer, fill, shape) }

func newTensor(c core.Category, fill filler, shape []int) *core.Tensor {
	t := op.Empty(shape...).Keep()
	if t.Err() != nil {
		return t
	}
	t.Storage().SetCategory(c)
	if filled := fill(t); filled.Err() != nil {
		t.Release()
		return filled
	}
	return t
}

func fillWith(v float64) filler {
	return func(t *core.Tensor) *core.Tensor { return InitConstant(t, v) }
}

// within is uniform in [-bound, bound).
func within(bound float64) filler {
	return func(t *core.Tensor) *core.Tensor { return InitUniform(t, -bound, bound) }
}

// fanUniform is PyTorch's default for weights and biases of linear and convolution layers: uniform within 1/sqrt(fanIn).
func fanUniform(fanIn int) filler {
	if fanIn <= 0 {
		return within(0)
	}
	return within(1 / math.Sqrt(float64(fanIn)))
}

func normal(std float64) filler {
	return func(t *core.Tensor) *core.Tensor { return InitNormal(t, 0, std) }
}

func xavierUniform(t *core.Tensor) *core.Tensor { return InitXavierUniform(t, 1) }
