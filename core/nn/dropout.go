package nn

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Dropout zeroes elements with probability P in training and scales the others by 1/(1-P) (Srivastava et al. 2014).
type Dropout struct {
	Base
	P float64
}

// NewDropout returns a dropout layer.
func NewDropout(p float64) *Dropout { return &Dropout{P: p} }

// Forward maps any shape to itself.
func (d *Dropout) Forward(x *core.Tensor) *core.Tensor { return op.Dropout(x, d.P, d.Training()) }

// Dropout2d zeroes whole channels of inputs [n, c, h, w].
type Dropout2d struct {
	Base
	P float64
}

// NewDropout2d returns a channel dropout layer.
func NewDropout2d(p float64) *Dropout2d { return &Dropout2d{P: p} }

// Forward maps [n, c, h, w] to itself.
func (d *Dropout2d) Forward(x *core.Tensor) *core.Tensor { return op.Dropout2d(x, d.P, d.Training()) }

// PReLU is x where it is positive and weight*x elsewhere (He et al. 2015).
type PReLU struct {
	Base
	Weight *core.Tensor // [1] or [channels]
}

// NewPReLU returns a layer with the given number of slopes, 1 or one a channel, all starting at init.
func NewPReLU(num int, init float64) *PReLU { return &PReLU{Weight: newParameter(fillWith(init), num)} }

// Forward maps [n, channels, ...] to itself.
func (p *PReLU) Forward(x *core.Tensor) *core.Tensor { return op.Prelu(x, p.Weight) }

// MaxPool2d takes the largest element of each window.
type MaxPool2d struct {
	Base
	Kernel  []int
	Options op.MaxPoolOptions
}

// NewMaxPool2d returns a layer with a square window that steps by its own size unless the options say otherwise.
func NewMaxPool2d(kernel int, o op.MaxPoolOptions) *MaxPool2d {
	return &MaxPool2d{Kernel: []int{kernel, kernel}, Options: o}
}

// Forward maps [n, c, h, w] to [n, c, h', w'].
func (p *MaxPool2d) Forward(x *core.Tensor) *core.Tensor { return op.MaxPool2d(x, p.Kernel, p.Options) }

// AvgPool2d takes the mean of each window.
type AvgPool2d struct {
	Base
	Kernel  []int
	Options op.AvgPoolOptions
}

// NewAvgPool2d returns a layer with a square window that steps by its own size unless the options say otherwise.
func NewAvgPool2d(kernel int, o op.AvgPoolOptions) *AvgPool2d {
	return &AvgPool2d{Kernel: []int{kernel, kernel}, Options: o}
}

// Forward maps [n, c, h, w] to [n, c, h', w'].
func (p *AvgPool2d) Forward(x *core.Tensor) *core.Tensor { return op.AvgPool2d(x, p.Kernel, p.Options) }
