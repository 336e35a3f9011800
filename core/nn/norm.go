package nn

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// NormOptions are the options of the normalisation layers.
type NormOptions struct {
	Eps float64 // added to the variance; 0 means 1e-5, for RMSNorm the dtype's machine epsilon
	// NoAffine leaves out weight and bias.
	NoAffine bool
	// NoBias leaves out the bias alone.
	NoBias bool
}

func (o NormOptions) eps() float64 {
	if o.Eps == 0 {
		return 1e-5
	}
	return o.Eps
}

func (o NormOptions) affine(shape ...int) (weight, bias *core.Tensor) {
	if o.NoAffine {
		return nil, nil
	}
	weight = newParameter(fillWith(1), shape...)
	if !o.NoBias {
		bias = newParameter(fillWith(0), shape...)
	}
	return weight, bias
}

// LayerNorm normalises over the last dimensions (Ba, Kiros and Hinton 2016).
type LayerNorm struct {
	Base
	Weight, Bias *core.Tensor // of the normalised shape, or nil
	Shape        []int
	Eps          float64
}

// NewLayerNorm returns a layer that normalises over the last len(shape) dimensions, which must have those sizes.
func NewLayerNorm(shape []int, o NormOptions) *LayerNorm {
	w, b := o.affine(shape...)
	return &LayerNorm{Weight: w, Bias: b, Shape: shape, Eps: o.eps()}
}

// Forward maps [..., shape] to the same shape.
func (l *LayerNorm) Forward(x *core.Tensor) *core.Tensor {
	return op.LayerNorm(x, l.Shape, l.Weight, l.Bias, l.Eps)
}

// RMSNorm divides by the root of the mean square over the last dimensions (Zhang and Sennrich 2019).
type RMSNorm struct {
	Base
	Weight *core.Tensor // of the normalised shape, or nil
	Shape  []int
	Eps    float64
}

// NewRMSNorm returns a layer that normalises over the last len(shape) dimensions, which must have those sizes.
func NewRMSNorm(shape []int, o NormOptions) *RMSNorm {
	o.NoBias = true
	w, _ := o.affine(shape...)
	if o.Eps == 0 {
		o.Eps = math.NaN() // the operation's word for the dtype's
	}
	return &RMSNorm{Weight: w, Shape: shape, Eps: o.Eps}
}

// Forward maps [..., shape] to the same shape.
func (l *RMSNorm) Forward(x *core.Tensor) *core.Tensor {
	return op.RMSNorm(x, l.Shape, l.Weight, l.Eps)
}

// GroupNorm normalises groups of channels (Wu and He 2018).
type GroupNorm struct {
	Base
	Weight, Bias *core.Tensor // [channels], or nil
	Groups       int
	Eps          float64
}

// NewGroupNorm returns a layer for inputs of the given number of channels, which the number of groups must divide.
func NewGroupNorm(groups, channels int, o NormOptions) *GroupNorm {
	w, b := o.affine(channels)
	return &GroupNorm{Weight: w, Bias: b, Groups: groups, Eps: o.eps()}
}

// Forward maps [n, channels, ...] to the same shape.
func (l *GroupNorm) Forward(x *core.Tensor) *core.Tensor {
	return op.GroupNorm(x, l.Groups, l.Weight, l.Bias, l.Eps)
}
