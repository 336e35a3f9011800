// Package indexing has the CPU kernels that read and write at indices and masks: gather and scatter, advanced indexing, masked selection,
// nonzero coordinates, and the gradient of embeddings.
//
// Indices are int32 or int64. An index out of range is an error; a kernel that changes a tensor in place then leaves it unchanged. Values
// written to the same element are combined in the row-major order of their indices, whatever the number of threads.
package indexing

import (
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/copying"
)

func init() {
	kernel.Register(contract.Gather, gatherCall)
	kernel.Register(contract.Scatter, scatterCall)
	kernel.Register(contract.Index, indexCall)
	kernel.Register(contract.IndexPut, putCall)
	kernel.Register(contract.OneHot, oneHotCall)
	kernel.Register(contract.BagIndices, bagIndicesCall)
	kernel.Register(contract.BagMax, bagMaxCall)
	kernel.Register(contract.EmbeddingBackward, embeddingBackwardCall)
	kernel.Register(contract.MaskCount, countCall)
	kernel.Register(contract.MaskPositions, positionsCall)
	kernel.Register(contract.MaskedSelect, maskedSelectCall)
	kernel.Register(contract.MaskedScatter, maskedScatterCall)
	kernel.Register(contract.Nonzero, nonzeroCall)
}

func operand(o *core.Operand) view { return newView(o.Ptr(), int(o.DType), o.Shape, o.Strides) }

func outOfRange(c *core.Call, b bad, dim, size int) error {
	return core.Errorf(core.IndexError, c.Op, "index %d at position %d is out of range for dimension %d of size %d", b.value, b.position, dim, size)
}

func gatherCall(ctx *kernel.Context, c *core.Call) error {
	out, in, index := operand(&c.Outs[0]), operand(&c.Ins[0]), operand(&c.Ins[1])
	dim := contract.Dim(c)
	var b bad
	if !gather(ctx.Pool, &out, &in, &index, dim, &b) {
		return outOfRange(c, b, dim, c.Ins[0].Shape[dim])
	}
	return nil
}

func scatterCall(ctx *kernel.Context, c *core.Call) error {
	self, index := operand(&c.Outs[0]), operand(&c.Ins[0])
	a := contract.ScatterOf(c)
	half := a.Mode != contract.ScatterAssign && c.Outs[0].DType.IsHalf()
	n, d, value := 64, c.Outs[0].DType, c.Ins[1]
	if half { // combine in float32 and round once
		d = core.Float32
		n += 4 * (c.Outs[0].Numel() + value.Numel())
	}
	p, err := ctx.Scratch(n)
	if err != nil {
		return err
	}
	if value.IsNumber {
		value = number(ctx, p, d, value.Number, c.Ins[0].Shape)
	}
	var sum core.Operand
	if half {
		sum = float32At(unsafe.Add(p, 64), c.Outs[0].Shape)
		copying.Copy(ctx, &sum, &c.Outs[0])
		self = operand(&sum)
		if !c.Ins[1].IsNumber {
			value = float32At(unsafe.Add(p, 64+4*sum.Numel()), value.Shape)
			copying.Copy(ctx, &value, &c.Ins[1])
		}
	}
	src := operand(&value)
	var b bad
	if !scatter(ctx.Pool, &self, &index, &src, a.Dim, int(a.Mode), &b) {
		size := 1
		if len(c.Outs[0].Shape) > 0 {
			size = c.Outs[0].Shape[a.Dim]
		}
		return outOfRange(c, b, a.Dim, size)
	}
	if half {
		copying.Copy(ctx, &c.Outs[0], &sum)
	}
	return nil
}

// number returns an operand of the given shape whose elements are all one number. p is memory for it.
func number(ctx *kernel.Context, p unsafe.Pointer, d core.DType, v core.Number, shape []int) core.Operand {
	one := core.Operand{Memory: core.Memory{Ptr: p}, DType: d}
	copying.Copy(ctx, &one, &core.Operand{IsNumber: true, Number: v})
	one.Shape, one.Strides = shape, make([]int, len(shape))
	return one
}

// float32At returns a contiguous float32 operand at p.
func float32At(p unsafe.Pointer, shape []int) core.Operand {
	strides := make([]int, len(shape))
	core.ContiguousStrides(shape, strides)
	return core.Operand{Memory: core.Memory{Ptr: p}, DType: core.Float32, Shape: shape, Strides: strides}
}

// indices returns n bytes of scratch and the views of the index tensors Ins[1:].
func indices(ctx *kernel.Context, c *core.Call, n int) (unsafe.Pointer, []view, error) {
	k := len(c.Ins) - 1
	room := (k*int(unsafe.Sizeof(view{})) + 63) &^ 63
	p, err := ctx.Scratch(room + n)
	if err != nil {
		return nil, nil, err
	}
	views := unsafe.Slice((*view)(p), k)
	for i := range views {
		views[i] = operand(&c.Ins[i+1])
	}
	return unsafe.Add(p, room), views, nil
}

func indexCall(ctx *kernel.Context, c *core.Call) error {
	p, index, err := indices(ctx, c, 8*c.Ins[1].Numel())
	if err != nil {
		return err
	}
	out, in, a := operand(&c.Outs[0]), operand(&c.Ins[0]), contract.IndexOf(c)
	var b bad
	if !selectAt(ctx.Pool, &out, &in, index, a.Wrap, p, &b) {
		return outOfRange(c, b, int(a.Dims[b.tensor]), c.Ins[0].Shape[b.tensor])
	}
	return nil
}

func putCall(ctx *kernel.Context, c *core.Call) error {
	a := contract.IndexPutOf(c)
	mode := int(a.Mode)
	p, index, err := indices(ctx, c, 64+c.Ins[1].Numel()*putScratch(int(c.Outs[0].DType), mode))
	if err != nil {
		return err
	}
	values := c.Ins[0]
	if values.IsNumber {
		shape := append(append([]int{}, c.Ins[1].Shape...), c.Outs[0].Shape[len(index):]...)
		values = number(ctx, p, c.Outs[0].DType, values.Number, shape)
	}
	self, from := operand(&c.Outs[0]), operand(&values)
	var b bad
	if !put(ctx.Pool, &self, &from, index, a.Wrap, mode, unsafe.Add(p, 64), &b) {
		return outOfRange(c, b, int(a.Dims[b.tensor]), c.Outs[0].Shape[b.tensor])
	}
	return nil
}

// oneHotCall writes zeros, and scatters ones along the last dimension of the result.
func oneHotCall(ctx *kernel.Context, c *core.Call) error {
	p, err := ctx.Scratch(64)
	if err != nil {
		return err
	}
	out, column, dim := &c.Outs[0], c.Ins[0], len(c.Ins[0].Shape)
	column.Shape, column.Strides = append(slices.Clone(column.Shape), 1), append(slices.Clone(column.Strides), 1)
	copying.Copy(ctx, out, &core.Operand{IsNumber: true})
	one := number(ctx, p, out.DType, core.IntNumber(1), column.Shape)
	self, index, src := operand(out), operand(&column), operand(&one)
	var b bad
	if !scatter(ctx.Pool, &self, &index, &src, dim, int(contract.ScatterAssign), &b) {
		return outOfRange(c, b, dim, out.Shape[dim])
	}
	return nil
}

func embeddingBackwardCall(ctx *kernel.Context, c *core.Call) error {
	p, err := ctx.Scratch(32 * c.Ins[1].Numel())
	if err != nil {
		return err
	}
	out, grad, index := operand(&c.Outs[0]), operand(&c.Ins[0]), operand(&c.Ins[1])
	a := contract.EmbeddingBackwardOf(c)
	var b bad
	if !embeddingBackward(ctx.Pool, &out, &grad, &index, a.Padding, a.ByFrequency, a.Add, p, &b) {
		return outOfRange(c, b, 0, c.Outs[0].Shape[0])
	}
	return nil
}

func countCall(ctx *kernel.Context, c *core.Call) error {
	mask := operand(&c.Ins[0])
	p, err := ctx.Scratch(maskScratch(&mask))
	if err != nil {
		return err
	}
	*(*int64)(c.Outs[0].Ptr()) = int64(count(ctx.Pool, &mask, p))
	return nil
}

func positionsCall(ctx *kernel.Context, c *core.Call) error {
	out, mask := operand(&c.Outs[0]), operand(&c.Ins[0])
	p, err := ctx.Scratch(maskScratch(&mask))
	if err != nil {
		return err
	}
	return counted(c, positions(ctx.Pool, &out, &mask, p), c.Outs[0].Shape[1])
}

func maskedSelectCall(ctx *kernel.Context, c *core.Call) error {
	out, in, mask := operand(&c.Outs[0]), operand(&c.Ins[0]), operand(&c.Ins[1])
	p, err := ctx.Scratch(maskScratch(&mask))
	if err != nil {
		return err
	}
	return counted(c, maskedSelect(ctx.Pool, &out, &in, &mask, p), c.Outs[0].Numel())
}

// counted fails if a mask, or another tensor that determines a result's shape, has changed since that shape was
// computed.
func counted(c *core.Call, got, want int) error {
	if got != want {
		return core.Errorf(core.StateError, c.Op, "the result would have %d elements, the values read before gave %d", got, want)
	}
	return nil
}

func maskedScatterCall(ctx *kernel.Context, c *core.Call) error {
	self, mask, source := operand(&c.Outs[0]), operand(&c.Ins[0]), operand(&c.Ins[1])
	p, err := ctx.Scratch(maskScratch(&mask))
	if err != nil {
		return err
	}
	if n := maskedScatter(ctx.Pool, &self, &mask, &source, p); n > c.Ins[1].Numel() {
		return core.Errorf(core.ShapeError, c.Op, "the mask has %d true elements, the source only %d elements", n, c.Ins[1].Numel())
	}
	return nil
}
