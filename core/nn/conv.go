package nn

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// ConvOptions are the options of the convolution layers.
type ConvOptions struct {
	op.ConvOptions
	NoBias bool
	// PaddingMode says what the padding is made of, as the mode of [op.Pad]: "zeros" (the default), "reflect", "replicate"
	// or "circular".
	PaddingMode string
}

// Conv is a convolution over one, two or three dimensions.
type Conv struct {
	Base
	Weight  *core.Tensor // [out, in/groups, kernel...]
	Bias    *core.Tensor // [out], or nil
	Options op.ConvOptions

	padding []int  // by hand, for modes other than zeros
	mode    string // of the padding
}

// NewConv1d returns a convolution over inputs [n, in, l].
func NewConv1d(in, out, kernel int, o ConvOptions) *Conv { return newConv(in, out, o, kernel) }

// NewConv2d returns a convolution over inputs [n, in, h, w] with a square kernel.
func NewConv2d(in, out, kernel int, o ConvOptions) *Conv { return newConv(in, out, o, kernel, kernel) }

// NewConv3d returns a convolution over inputs [n, in, d, h, w] with a cubic kernel.
func NewConv3d(in, out, kernel int, o ConvOptions) *Conv {
	return newConv(in, out, o, kernel, kernel, kernel)
}

// NewConv returns a convolution whose kernel has the given size in each of one, two or three dimensions; weight and bias
// are uniform within 1/sqrt(in/groups * kernel).
func NewConv(in, out int, kernel []int, o ConvOptions) *Conv { return newConv(in, out, o, kernel...) }

func newConv(in, out int, o ConvOptions, kernel ...int) *Conv {
	groups := max(o.Groups, 1)
	if err := checkConv(in, out, groups, kernel); err != nil {
		return &Conv{Weight: core.ErrorTensor(err)}
	}
	fan := in / groups * core.Numel(kernel)
	c := &Conv{Weight: newParameter(fanUniform(fan), append([]int{out, in / groups}, kernel...)...), Options: o.ConvOptions}
	if !o.NoBias {
		c.Bias = newParameter(fanUniform(fan), out)
	}
	if o.PaddingMode != "" && o.PaddingMode != "zeros" {
		c.padBy(o.PaddingMode, kernel)
	}
	return c
}

// padBy makes the layer pad its input itself, as its options say.
func (c *Conv) padBy(mode string, kernel []int) {
	at := func(list []int, i, none int) int {
		switch len(list) {
		case 0:
			return none
		case 1:
			return list[0]
		}
		return list[min(i, len(list)-1)]
	}
	c.mode = mode
	for i := len(kernel) - 1; i >= 0; i-- {
		before := at(c.Options.Padding, i, 0)
		after := before
		if c.Options.Same {
			total := at(c.Options.Dilation, i, 1) * (kernel[i] - 1)
			before, after = total/2, total-total/2
		}
		c.padding = append(c.padding, before, after)
	}
	c.Options.Padding, c.Options.Same = nil, false
}

func checkConv(in, out, groups int, kernel []int) error {
	switch {
	case len(kernel) < 1 || len(kernel) > 3 || slices.Min(kernel) < 1:
		return core.Errorf(core.ValueError, "conv", "got a kernel %v, want one to three positive sizes", kernel)
	case in < 1 || out < 1:
		return core.Errorf(core.ValueError, "conv", "got %d input and %d output channels, want at least one", in, out)
	case in%groups != 0 || out%groups != 0:
		return core.Errorf(core.ValueError, "conv", "%d groups do not divide %d input and %d output channels", groups, in, out)
	}
	return nil
}

// Forward maps [n, in, ...] to [n, out, ...].
func (c *Conv) Forward(x *core.Tensor) *core.Tensor {
	if c.padding != nil {
		x = op.Pad(x, c.padding, op.PadOptions{Mode: c.mode})
	}
	switch c.Weight.Dim() {
	case 3:
		return op.Conv1d(x, c.Weight, c.Bias, c.Options)
	case 5:
		return op.Conv3d(x, c.Weight, c.Bias, c.Options)
	}
	return op.Conv2d(x, c.Weight, c.Bias, c.Options)
}

// ConvTransposeOptions are the options of the transposed convolution layers.
type ConvTransposeOptions struct {
	op.ConvTransposeOptions
	NoBias bool
}

// ConvTranspose is a transposed convolution over one, two or three dimensions.
type ConvTranspose struct {
	Base
	Weight  *core.Tensor // [in, out/groups, kernel...]
	Bias    *core.Tensor // [out], or nil
	Options op.ConvTransposeOptions
}

// NewConvTranspose1d returns a transposed convolution over inputs [n, in, l].
func NewConvTranspose1d(in, out, kernel int, o ConvTransposeOptions) *ConvTranspose {
	return NewConvTranspose(in, out, []int{kernel}, o)
}

// NewConvTranspose2d returns a transposed convolution over inputs [n, in, h, w] with a square kernel.
func NewConvTranspose2d(in, out, kernel int, o ConvTransposeOptions) *ConvTranspose {
	return NewConvTranspose(in, out, []int{kernel, kernel}, o)
}

// NewConvTranspose3d returns a transposed convolution over inputs [n, in, d, h, w] with a cubic kernel.
func NewConvTranspose3d(in, out, kernel int, o ConvTransposeOptions) *ConvTranspose {
	return NewConvTranspose(in, out, []int{kernel, kernel, kernel}, o)
}

// NewConvTranspose returns a transposed convolution whose kernel has the given size in each of one, two or three
// dimensions; weight and bias are uniform within 1/sqrt(out/groups * kernel).
func NewConvTranspose(in, out int, kernel []int, o ConvTransposeOptions) *ConvTranspose {
	groups := max(o.Groups, 1)
	if err := checkConv(in, out, groups, kernel); err != nil {
		return &ConvTranspose{Weight: core.ErrorTensor(err)}
	}
	fan := out / groups * core.Numel(kernel)
	c := &ConvTranspose{Weight: newParameter(fanUniform(fan), append([]int{in, out / groups}, kernel...)...), Options: o.ConvTransposeOptions}
	if !o.NoBias {
		c.Bias = newParameter(fanUniform(fan), out)
	}
	return c
}

// Forward maps [n, in, ...] to [n, out, ...].
func (c *ConvTranspose) Forward(x *core.Tensor) *core.Tensor {
	if c.Weight == nil {
		return core.ErrorTensor(core.Errorf(core.TypeError, "conv_transpose", "the weight is nil"))
	}
	switch c.Weight.Dim() {
	case 3:
		return op.ConvTranspose1d(x, c.Weight, c.Bias, c.Options)
	case 5:
		return op.ConvTranspose3d(x, c.Weight, c.Bias, c.Options)
	}
	return op.ConvTranspose2d(x, c.Weight, c.Bias, c.Options)
}
