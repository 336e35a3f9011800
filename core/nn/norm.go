package nn

import (
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

// BatchNormOptions are the options of [NewBatchNorm1d] and its relatives.
type BatchNormOptions struct {
	NormOptions
	// Momentum is the weight of the newest batch in the running statistics; 0 means 0.1.
	Momentum float64
	// NoRunningStats makes evaluation use the statistics of its batch too.
	NoRunningStats bool
}

// BatchNorm normalises each channel over the batch (Ioffe and Szegedy 2015): in training by the statistics of the batch,
// which move the running ones, in evaluation by the running ones.
type BatchNorm struct {
	Base
	Weight, Bias      *core.Tensor // [channels], or nil
	RunningMean       *core.Tensor `plait:"buffer"`
	RunningVar        *core.Tensor `plait:"buffer"`
	NumBatchesTracked *core.Tensor `plait:"buffer"`
	Eps, Momentum     float64

	low, high int // of the input's dimensions
}

// NewBatchNorm1d returns a layer for inputs [n, channels] or [n, channels, l].
func NewBatchNorm1d(channels int, o BatchNormOptions) *BatchNorm {
	return newBatchNorm(channels, 2, 3, o)
}

// NewBatchNorm2d returns a layer for inputs [n, channels, h, w].
func NewBatchNorm2d(channels int, o BatchNormOptions) *BatchNorm {
	return newBatchNorm(channels, 4, 4, o)
}

// NewBatchNorm3d returns a layer for inputs [n, channels, d, h, w].
func NewBatchNorm3d(channels int, o BatchNormOptions) *BatchNorm {
	return newBatchNorm(channels, 5, 5, o)
}

func newBatchNorm(channels, low, high int, o BatchNormOptions) *BatchNorm {
	w, b := o.affine(channels)
	l := &BatchNorm{Weight: w, Bias: b, Eps: o.eps(), Momentum: o.Momentum, low: low, high: high}
	if l.Momentum == 0 {
		l.Momentum = 0.1
	}
	if !o.NoRunningStats {
		l.RunningMean = newBuffer(fillWith(0), channels)
		l.RunningVar = newBuffer(fillWith(1), channels)
		l.NumBatchesTracked = core.Scalar(int64(0)).Keep()
	}
	return l
}

// Forward maps [n, channels, ...] to the same shape.
func (l *BatchNorm) Forward(x *core.Tensor) *core.Tensor {
	if d := x.Dim(); x.Err() == nil && (d < l.low || d > l.high) {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "batch_norm", "got an input of shape %v, want %d to %d dimensions", x.Shape(), l.low, l.high))
	}
	batch := l.Training() || l.RunningMean == nil
	if l.Training() && l.NumBatchesTracked != nil {
		core.NoGrad(func() { op.AddInPlace(l.NumBatchesTracked, core.IntNum(1)) })
	}
	return op.BatchNorm(x, l.RunningMean, l.RunningVar, l.Weight, l.Bias, batch, l.Momentum, l.Eps)
}

// InstanceNorm normalises each channel of each sample (Ulyanov, Vedaldi and Lempitsky 2016).
type InstanceNorm struct {
	Base
	Weight, Bias *core.Tensor // [channels], or nil
	Eps          float64
}

// NewInstanceNorm returns a layer for inputs [n, channels, ...]. It has weight and bias only if affine.
func NewInstanceNorm(channels int, affine bool, o NormOptions) *InstanceNorm {
	o.NoAffine = !affine
	w, b := o.affine(channels)
	return &InstanceNorm{Weight: w, Bias: b, Eps: o.eps()}
}

// Forward maps [n, channels, ...] to the same shape.
func (l *InstanceNorm) Forward(x *core.Tensor) *core.Tensor {
	return op.InstanceNorm(x, nil, nil, l.Weight, l.Bias, true, 0.1, l.Eps)
}
