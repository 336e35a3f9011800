package contract

import "github.com/plait-ml/plait/core"

var (
	// ConvForward writes the convolution of x with the weight w, plus a bias. All are contiguous, of one dtype;
	// but where a device rounds factors, w may be float32 and the others bfloat16, to which w is rounded.
	ConvForward = declare(Contract{Name: "conv_forward", Outs: "y", Ins: "x w bias?", Ints: "geometry..."})
	// ConvInputGrad writes the gradient of the input, given the gradient dy of the output. It adds a bias if there is
	// one: a transposed convolution is this kernel.
	ConvInputGrad = declare(Contract{Name: "conv_input_grad", Outs: "dx", Ins: "dy w bias?", Ints: "geometry..."})
	// ConvWeightGrad writes the gradient of the weight.
	ConvWeightGrad = declare(Contract{Name: "conv_weight_grad", Outs: "dw", Ins: "x dy", Ints: "geometry..."})

	// Im2Col writes the patches of images as columns. The last two dimensions of images are spatial.
	Im2Col = declare(Contract{Name: "im2col", Outs: "columns", Ins: "images", Ints: "geometry..."})
	// Col2Im adds each column to the place of its patch in the images.
	Col2Im = declare(Contract{Name: "col2im", Outs: "images", Ins: "columns", Ints: "geometry..."})
)

// SetConv adds the attributes of a convolution to a call: stride, padding and dilation of each spatial dimension, the
// number of groups, and whether a device may compute less precisely, as [core.ReducedConvolutions] permits.
func SetConv(c *core.Call, stride, padding, dilation []int, groups int, reduced bool) {
	c.Dims(stride).Dims(padding).Dims(dilation).Int(int64(groups), Flag(reduced))
}

// ConvAttrs are the attributes of a convolution as kernels read them.
type ConvAttrs struct {
	Stride, Padding, Dilation []int64
	Groups                    int64
	Reduced                   bool
}

// ConvOf reads the attributes of a call.
func ConvOf(c *core.Call) ConvAttrs {
	nd := len(c.Ints) / 3
	return ConvAttrs{c.Ints[:nd], c.Ints[nd : 2*nd], c.Ints[2*nd : 3*nd], c.Ints[3*nd], c.Ints[3*nd+1] != 0}
}

// SetPatches adds the attributes of [Im2Col] and [Col2Im] to a call. Each has an entry for both spatial dimensions: the
// size of a patch, stride, padding, dilation, and the number of patches.
func SetPatches(c *core.Call, kernel, stride, padding, dilation, places []int) *core.Call {
	return c.Dims(kernel).Dims(stride).Dims(padding).Dims(dilation).Dims(places)
}

// PatchesAttrs are the attributes of [Im2Col] and [Col2Im] as kernels read them.
type PatchesAttrs struct{ Kernel, Stride, Padding, Dilation, Places []int64 }

// PatchesOf reads the attributes of a call.
func PatchesOf(c *core.Call) PatchesAttrs {
	return PatchesAttrs{c.Ints[:2], c.Ints[2:4], c.Ints[4:6], c.Ints[6:8], c.Ints[8:10]}
}
