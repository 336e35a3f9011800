package nn

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Linear applies y = x W^T + b along the last dimension.
type Linear struct {
	Base
	Weight *core.Tensor // [out, in]
	Bias   *core.Tensor // [out], or nil
}

// LinearOptions are the options of [NewLinear].
type LinearOptions struct {
	NoBias bool
}

// NewLinear returns a layer from in to out features; weight and bias are uniform within 1/sqrt(in).
func NewLinear(in, out int, o LinearOptions) *Linear {
	l := &Linear{Weight: newParameter(fanUniform(in), out, in)}
	if !o.NoBias {
		l.Bias = newParameter(fanUniform(in), out)
	}
	return l
}

// Forward maps [..., in] to [..., out].
func (l *Linear) Forward(x *core.Tensor) *core.Tensor { return op.Linear(x, l.Weight, l.Bias) }

// Flatten joins the dimensions from Start to End into one.
type Flatten struct {
	Base
	Start, End int
}

// NewFlatten returns a layer that flattens all dimensions but the first.
func NewFlatten() *Flatten { return &Flatten{Start: 1, End: -1} }

// Forward maps [n, ...] to [n, product of the rest].
func (f *Flatten) Forward(x *core.Tensor) *core.Tensor { return op.Flatten(x, f.Start, f.End) }

// Identity returns its input.
type Identity struct{ Base }

// Forward returns x.
func (*Identity) Forward(x *core.Tensor) *core.Tensor { return x }

// Bilinear maps x1 [*, in1] and x2 [*, in2] to x1^T weight x2 + bias [*, out].
type Bilinear struct {
	Base
	Weight *core.Tensor // [out, in1, in2]
	Bias   *core.Tensor // [out], or nil
}

// NewBilinear returns a layer from in1 times in2 to out features; weight and bias are uniform within 1/sqrt(in1).
func NewBilinear(in1, in2, out int, o LinearOptions) *Bilinear {
	l := &Bilinear{Weight: newParameter(fanUniform(in1), out, in1, in2)}
	if !o.NoBias {
		l.Bias = newParameter(fanUniform(in1), out)
	}
	return l
}

// Forward maps [..., in1] and [..., in2] to [..., out].
func (l *Bilinear) Forward(x1, x2 *core.Tensor) *core.Tensor {
	return op.Bilinear(x1, x2, l.Weight, l.Bias)
}

// NewUnflatten returns a layer that gives dimension dim the given sizes, of which one may be -1.
func NewUnflatten(dim int, sizes ...int) *Func {
	return named("Unflatten", fmt.Sprintf("dim=%d, unflattened_size=%v", dim, sizes), func(x *core.Tensor) *core.Tensor {
		return op.Unflatten(x, dim, sizes...)
	})
}
