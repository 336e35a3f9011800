// Package resample interpolates and pads images, and lays out their patches as columns, on the CPU.
package resample

/*
#cgo CFLAGS: -DPLAIT_HEADERS=0x2b0f6f81
#cgo noescape plaitk_resample_scratch
#cgo nocallback plaitk_resample_scratch
#cgo noescape plaitk_resample_forward
#cgo nocallback plaitk_resample_forward
#cgo noescape plaitk_resample_backward
#cgo nocallback plaitk_resample_backward
#cgo noescape plaitk_resample_pad_scratch
#cgo nocallback plaitk_resample_pad_scratch
#cgo noescape plaitk_resample_pad
#cgo nocallback plaitk_resample_pad
#cgo noescape plaitk_resample_pad_grad
#cgo nocallback plaitk_resample_pad_grad
#cgo noescape plaitk_resample_unfold
#cgo nocallback plaitk_resample_unfold
#cgo noescape plaitk_resample_fold_scratch
#cgo nocallback plaitk_resample_fold_scratch
#cgo noescape plaitk_resample_fold
#cgo nocallback plaitk_resample_fold
#include "c/resample.h"
*/
import "C"

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/resample/c" // its kernels
)

func init() {
	kernel.Register("interpolate", interpolateCall)
	kernel.Register("interpolate_grad", interpolateGradCall)
	kernel.Register("pad", padCall)
	kernel.Register("pad_grad", padGradCall)
	kernel.Register("im2col", unfoldCall)
	kernel.Register("col2im", foldCall)
}

func workers(ctx *kernel.Context) *C.plait_pool { return (*C.plait_pool)(ctx.Pool) }

// interpolation describes one between tensors whose last Ints[0] dimensions are spatial: Ints are that, the mode and
// whether corners are aligned, Floats the scale of each dimension or 0.
func interpolation(c *core.Call, in, out *core.Operand) *C.plaitk_resample_shape {
	nd := int(c.Ints[0])
	first := len(in.Shape) - nd
	s := &C.plaitk_resample_shape{
		dtype:         C.int64_t(in.DType),
		planes:        C.int64_t(core.Numel(in.Shape[:first])),
		mode:          C.int64_t(c.Ints[1]),
		align_corners: C.int64_t(c.Ints[2]),
	}
	for i := range 3 {
		s.in[i], s.out[i] = 1, 1
	}
	for i := range nd {
		d := 3 - nd + i
		s.in[d], s.out[d] = C.int64_t(in.Shape[first+i]), C.int64_t(out.Shape[first+i])
		s.scale[d] = C.double(c.Floats[i])
	}
	return s
}

// interpolate: Outs[0] = Ins[0] interpolated. Contiguous, of one dtype; attributes as for interpolation.
func interpolateCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	s := interpolation(c, x, y)
	scratch, err := ctx.Scratch(int(C.plaitk_resample_scratch(workers(ctx), s)))
	if err != nil {
		return err
	}
	C.plaitk_resample_forward(workers(ctx), s, x.Ptr(), y.Ptr(), scratch)
	return nil
}

// interpolate_grad: Outs[0] = the gradient of the input of interpolate for the gradient Ins[0] of its output.
func interpolateGradCall(ctx *kernel.Context, c *core.Call) error {
	dy, dx := &c.Ins[0], &c.Outs[0]
	s := interpolation(c, dx, dy)
	scratch, err := ctx.Scratch(int(C.plaitk_resample_scratch(workers(ctx), s)))
	if err != nil {
		return err
	}
	C.plaitk_resample_backward(workers(ctx), s, dy.Ptr(), dx.Ptr(), scratch)
	return nil
}

// padding describes one of the last Ints[0] dimensions: Ints are that, the mode, and the elements in front of each.
func padding(c *core.Call, in, out *core.Operand) *C.plaitk_resample_padding {
	nd := int(c.Ints[0])
	first := len(in.Shape) - nd
	p := &C.plaitk_resample_padding{nd: C.int64_t(nd), mode: C.int64_t(c.Ints[1]), planes: C.int64_t(core.Numel(in.Shape[:first]))}
	for i := range nd {
		p.in[i], p.out[i], p.left[i] = C.int64_t(in.Shape[first+i]), C.int64_t(out.Shape[first+i]), C.int64_t(c.Ints[2+i])
	}
	return p
}

// bits returns a number as an element of dtype d.
func bits(v core.Number, d core.DType) uint64 {
	switch d {
	case core.Float64:
		return math.Float64bits(v.Float)
	case core.Float32:
		return uint64(math.Float32bits(float32(v.Float)))
	case core.Float16:
		return uint64(core.Float16Bits(float32(v.Float)))
	case core.BFloat16:
		return uint64(core.BFloat16Bits(float32(v.Float)))
	case core.Bool:
		if v.Float != 0 || v.Int != 0 {
			return 1
		}
		return 0
	}
	return uint64(v.Int)
}

// pad: Outs[0] = Ins[0] padded, with the number Ins[1] in mode 0. Contiguous, of one dtype; attributes as for padding.
func padCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	C.plaitk_resample_pad(workers(ctx), padding(c, x, y), C.int64_t(x.DType.Size()), C.uint64_t(bits(c.Ins[1].Number, x.DType)),
		x.Ptr(), y.Ptr(), nil)
	return nil
}

// pad_grad: Outs[0] = the gradient of the input of pad for the gradient Ins[0] of its output.
func padGradCall(ctx *kernel.Context, c *core.Call) error {
	dy, dx := &c.Ins[0], &c.Outs[0]
	p := padding(c, dx, dy)
	scratch, err := ctx.Scratch(int(C.plaitk_resample_pad_scratch(workers(ctx), p, C.int64_t(dx.DType))))
	if err != nil {
		return err
	}
	C.plaitk_resample_pad_grad(workers(ctx), p, C.int64_t(dx.DType), dy.Ptr(), dx.Ptr(), scratch)
	return nil
}

// patches describes those of an image whose last two dimensions are spatial: Ints are the kernel, the stride, the
// padding, the dilation and the number of places along both dimensions.
func patches(c *core.Call, image *core.Operand) *C.plaitk_resample_patches {
	first := len(image.Shape) - 2
	s := &C.plaitk_resample_patches{dtype: C.int64_t(image.DType), planes: C.int64_t(core.Numel(image.Shape[:first]))}
	for d := range 2 {
		s.in[d], s.kernel[d], s.stride[d] = C.int64_t(image.Shape[first+d]), C.int64_t(c.Ints[d]), C.int64_t(c.Ints[2+d])
		s.pad[d], s.dilation[d], s.out[d] = C.int64_t(c.Ints[4+d]), C.int64_t(c.Ints[6+d]), C.int64_t(c.Ints[8+d])
	}
	return s
}

// im2col: Outs[0] = the patches of Ins[0] as columns.
func unfoldCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	C.plaitk_resample_unfold(workers(ctx), patches(c, x), x.Ptr(), y.Ptr())
	return nil
}

// col2im: Outs[0] = the sum of the patches in the columns of Ins[0], each in its place.
func foldCall(ctx *kernel.Context, c *core.Call) error {
	y, x := &c.Ins[0], &c.Outs[0]
	s := patches(c, x)
	scratch, err := ctx.Scratch(int(C.plaitk_resample_fold_scratch(workers(ctx), s)))
	if err != nil {
		return err
	}
	C.plaitk_resample_fold(workers(ctx), s, y.Ptr(), x.Ptr(), scratch)
	return nil
}
