package contract

import "github.com/plait-ml/plait/core"

var (
	// ConvForward writes the convolution of x with the weight w, plus a bias. All are contiguous, of one dtype.
	ConvForward = declare(Contract{Name: "conv_forward", Outs: "y", Ins: "x w bias?", Ints: "geometry..."})
	// ConvInputGrad writes the gradient of the input for the gradient dy of the output, plus a bias, as a transposed
	// convolution has.
	ConvInputGrad = declare(Contract{Name: "conv_input_grad", Outs: "dx", Ins: "dy w bias?", Ints: "geometry..."})
	// ConvWeightGrad writes the gradient of the weight.
	ConvWeightGrad = declare(Contract{Name: "conv_weight_grad", Outs: "dw", Ins: "x dy", Ints: "geometry..."})

	// Im2Col writes the patches of images, whose last two dimensions are spatial, as columns.
	Im2Col = declare(Contract{Name: "im2col", Outs: "columns", Ins: "images", Ints: "geometry..."})
	// Col2Im writes the sum of the patches in columns, each in its place.
	Col2Im = declare(Contract{Name: "col2im", Outs: "images", Ins: "columns", Ints: "geometry..."})
)

// SetConv adds the attributes of the convolutions to a call: stride, padding and dilation of each spatial dimension, and
// the number of groups.
func SetConv(c *core.Call, stride, padding, dilation []int, groups int) {
	c.Dims(stride).Dims(padding).Dims(dilation).Int(int64(groups))
}

// ConvAttrs are the attributes of a convolution as its kernels read them.
type ConvAttrs struct {
	Stride, Padding, Dilation []int64
	Groups                    int64
}

// ConvOf reads the attributes of a call.
func ConvOf(c *core.Call) ConvAttrs {
	nd := len(c.Ints) / 3
	return ConvAttrs{c.Ints[:nd], c.Ints[nd : 2*nd], c.Ints[2*nd : 3*nd], c.Ints[3*nd]}
}

// SetPatches adds the attributes of [Im2Col] and [Col2Im] to a call: of both spatial dimensions the size of a patch, the
// stride, the padding, the dilation, and the number of places.
func SetPatches(c *core.Call, kernel, stride, padding, dilation, places []int) *core.Call {
	return c.Dims(kernel).Dims(stride).Dims(padding).Dims(dilation).Dims(places)
}

// PatchAttrs are the attributes of [Im2Col] and [Col2Im] as their kernels read them.
type PatchAttrs struct{ Kernel, Stride, Padding, Dilation, Places []int64 }

// PatchesOf reads the attributes of a call.
func PatchesOf(c *core.Call) PatchAttrs {
	return PatchAttrs{c.Ints[:2], c.Ints[2:4], c.Ints[4:6], c.Ints[6:8], c.Ints[8:10]}
}
