package nn

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// newParameter returns a leaf that requires a gradient, filled by fill; its memory is counted as a parameter's.
func newParameter(fill func(t *core.Tensor) *core.Tensor, shape ...int) *core.Tensor {
	t := newBuffer(fill, shape...)
	if t.Err() != nil {
		return t
	}
	t.Storage().SetCategory(core.Parameter)
	return t.SetRequiresGrad(true)
}

// newBuffer returns a tensor that is not trained, filled by fill.
func newBuffer(fill func(t *core.Tensor) *core.Tensor, shape ...int) *core.Tensor {
	var t *core.Tensor
	core.NoGrad(func() {
		t = op.Empty(shape...).Keep()
		if t.Err() != nil {
			return
		}
		t.Storage().SetCategory(core.Buffer)
		if filled := fill(t); filled.Err() != nil {
			t = filled
		}
	})
	return t
}

func fillWith(v float64) func(*core.Tensor) *core.Tensor {
	return func(t *core.Tensor) *core.Tensor { return op.FillInPlace(t, core.Num(v)) }
}

// fanUniform is PyTorch's default for weights and biases of linear and convolution layers: uniform within 1/sqrt(fanIn).
func fanUniform(fanIn int) func(*core.Tensor) *core.Tensor {
	bound := 0.0
	if fanIn > 0 {
		bound = 1 / math.Sqrt(float64(fanIn))
	}
	return func(t *core.Tensor) *core.Tensor { return op.UniformInPlace(t, -bound, bound, op.RandomOptions{}) }
}

func normal(std float64) func(*core.Tensor) *core.Tensor {
	return func(t *core.Tensor) *core.Tensor { return op.NormalInPlace(t, 0, std, op.RandomOptions{}) }
}

// xavierUniform is uniform within sqrt(6/(fanIn+fanOut)) (Glorot and Bengio 2010).
func xavierUniform(fanIn, fanOut int) func(*core.Tensor) *core.Tensor {
	bound := math.Sqrt(6 / float64(fanIn+fanOut))
	return func(t *core.Tensor) *core.Tensor { return op.UniformInPlace(t, -bound, bound, op.RandomOptions{}) }
}
