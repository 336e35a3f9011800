package nn

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// BatchNormOptions are the options of [NewBatchNorm1d] and its relatives.
type BatchNormOptions struct {
	NormOptions
	// Momentum is the weight of the newest batch in the running statistics; 0 means 0.1.
	Momentum float64
	// Cumulative makes the running statistics the plain mean over all batches instead.
	Cumulative bool
	// NoRunningStats makes evaluation use the statistics of its batch too.
	NoRunningStats bool
}

// A statistics keeps the running mean and variance of channels.
type statistics struct {
	RunningMean       *core.Tensor `plait:"buffer"`
	RunningVar        *core.Tensor `plait:"buffer"`
	NumBatchesTracked *core.Tensor `plait:"buffer"`
	Momentum          float64
	Cumulative        bool
}

func (s *statistics) init(channels int) {
	s.RunningMean = newBuffer(fillWith(0), channels)
	s.RunningVar = newBuffer(fillWith(1), channels)
	core.WithCategory(core.Buffer, func() { s.NumBatchesTracked = core.Scalar(int64(0)).Keep() })
}

// next counts a batch and returns the weight it has.
func (s *statistics) next() (momentum float64, err error) {
	if s.NumBatchesTracked == nil {
		return s.Momentum, nil
	}
	core.NoGrad(func() { err = op.AddInPlace(s.NumBatchesTracked, core.IntNum(1)).Err() })
	if err != nil || !s.Cumulative {
		return s.Momentum, err
	}
	n, err := s.NumBatchesTracked.Int()
	return 1 / float64(n), err
}

// BatchNorm normalises each channel over the batch (Ioffe and Szegedy 2015): in training by the statistics of the batch,
// which move the running ones, in evaluation by the running ones.
type BatchNorm struct {
	Base
	Weight, Bias *core.Tensor // [channels], or nil
	statistics
	Eps float64

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
	l := &BatchNorm{Weight: w, Bias: b, Eps: o.eps(), statistics: statistics{Momentum: o.Momentum, Cumulative: o.Cumulative}, low: low, high: high}
	if l.Momentum == 0 {
		l.Momentum = 0.1
	}
	if !o.NoRunningStats {
		l.statistics.init(channels)
	}
	return l
}

// Forward maps [n, channels, ...] to the same shape.
func (l *BatchNorm) Forward(x *core.Tensor) *core.Tensor {
	if err := x.Usable("batch_norm"); err != nil {
		return core.ErrorTensor(err)
	}
	if d := x.Dim(); d < l.low || d > l.high {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "batch_norm", "got an input of shape %v, want %d to %d dimensions", x.Shape(), l.low, l.high))
	}
	batch := l.Training() || l.RunningMean == nil
	momentum := 0.0
	if l.Training() {
		var err error
		if momentum, err = l.next(); err != nil {
			return core.ErrorTensor(err)
		}
	}
	return op.BatchNorm(x, l.RunningMean, l.RunningVar, l.Weight, l.Bias, batch, momentum, l.Eps)
}

func (l *BatchNorm) describe() (name, arguments string) {
	return fmt.Sprintf("BatchNorm%dd", l.high-2), fmt.Sprintf("eps=%v, momentum=%v, affine=%v, track_running_stats=%v", l.Eps, l.Momentum, l.Weight != nil, l.RunningMean != nil)
}

// InstanceNormOptions are the options of [NewInstanceNorm1d] and its relatives.
type InstanceNormOptions struct {
	Eps float64 // added to the variance; 0 means 1e-5
	// Affine adds weight and bias.
	Affine bool
	// RunningStats keeps running statistics, and uses them in evaluation.
	RunningStats bool
	// Momentum is the weight of the newest batch in the running statistics; 0 means 0.1.
	Momentum float64
}

// InstanceNorm normalises each channel of each sample (Ulyanov, Vedaldi and Lempitsky 2016).
type InstanceNorm struct {
	Base
	Weight, Bias *core.Tensor // [channels], or nil
	statistics
	Eps float64

	spatial int // dimensions
}

// NewInstanceNorm1d returns a layer for inputs [n, channels, l].
func NewInstanceNorm1d(channels int, o InstanceNormOptions) *InstanceNorm {
	return newInstanceNorm(channels, 1, o)
}

// NewInstanceNorm2d returns a layer for inputs [n, channels, h, w].
func NewInstanceNorm2d(channels int, o InstanceNormOptions) *InstanceNorm {
	return newInstanceNorm(channels, 2, o)
}

// NewInstanceNorm3d returns a layer for inputs [n, channels, d, h, w].
func NewInstanceNorm3d(channels int, o InstanceNormOptions) *InstanceNorm {
	return newInstanceNorm(channels, 3, o)
}

func newInstanceNorm(channels, spatial int, o InstanceNormOptions) *InstanceNorm {
	n := NormOptions{Eps: o.Eps, NoAffine: !o.Affine}
	w, b := n.affine(channels)
	l := &InstanceNorm{Weight: w, Bias: b, Eps: n.eps(), statistics: statistics{Momentum: o.Momentum}, spatial: spatial}
	if l.Momentum == 0 {
		l.Momentum = 0.1
	}
	if o.RunningStats {
		l.statistics.init(channels)
	}
	return l
}

// Forward maps [n, channels, ...] to the same shape; an input without n is one sample.
func (l *InstanceNorm) Forward(x *core.Tensor) *core.Tensor {
	if err := x.Usable("instance_norm"); err != nil {
		return core.ErrorTensor(err)
	}
	if x.Dim() == l.spatial+1 {
		one := op.Unsqueeze(x, 0)
		return op.Squeeze(l.Forward(one), 0)
	}
	if x.Dim() != l.spatial+2 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "instance_norm", "got an input of shape %v, want %d dimensions", x.Shape(), l.spatial+2))
	}
	own := l.Training() || l.RunningMean == nil
	momentum := 0.0
	if l.Training() {
		var err error
		if momentum, err = l.next(); err != nil {
			return core.ErrorTensor(err)
		}
	}
	return op.InstanceNorm(x, l.RunningMean, l.RunningVar, l.Weight, l.Bias, own, momentum, l.Eps)
}

func (l *InstanceNorm) describe() (name, arguments string) {
	return fmt.Sprintf("InstanceNorm%dd", l.spatial), fmt.Sprintf("eps=%v, momentum=%v, affine=%v, track_running_stats=%v", l.Eps, l.Momentum, l.Weight != nil, l.RunningMean != nil)
}
