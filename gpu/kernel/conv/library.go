package conv

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// Where the GPU's library multiplies much faster than programs do, with factors of 16 bits or rounded to TF32, convolutions store patches in
// the operands' dtype and leave the products to it.

const (
	// minLibraryPatch and minLibraryOutputs are the sizes of a group's product from which this pays. Depthwise convolutions are below.
	minLibraryPatch, minLibraryOutputs = 16, 8
	// lineElements is what lines of patches are rounded up to, so that each begins at 16 bytes.
	lineElements = 8
)

// byLibrary reports whether the library computes the products of a convolution.
func (v *convolution) byLibrary(r *shader.Recorder, t core.DType) bool {
	return r.GPU.Library && (t.IsHalf() || v.reduced && t == core.Float32) && v.patch() >= minLibraryPatch && v.outputs >= minLibraryOutputs && primitive.Product3(v.Out) > 0 && v.images > 0
}

// pointwise reports whether patches are the elements of the input in order.
func (v *convolution) pointwise() bool {
	return v.Taps() == 1 && v.In == v.Out && v.Stride == [3]int{1, 1, 1}
}

// chunk returns how many images are processed at a time if each takes that many bytes.
func (v *convolution) chunk(r *shader.Recorder, each int) int {
	return min(max(min(columnBytes, r.GPU.Binding)/max(each, 1), 1), v.images)
}

// scratchOf is scratch for a dtype.
func scratchOf(r *shader.Recorder, t core.DType, n int) (*core.Operand, error) {
	m, err := r.Temp(max((t.Size()*n+3)&^3, 4))
	return &core.Operand{Memory: m, DType: t}, err
}

// line returns n, rounded up for a line of patches.
func line(n int) int { return shader.Ceil(n, lineElements) * lineElements }

// forwardByLibrary computes the forward pass without the bias.
func (v *convolution) forwardByLibrary(r *shader.Recorder, x, w, y *core.Operand) error {
	positions, patch, channels := primitive.Product3(v.Out), v.patch(), v.groups*v.channels
	stride, some := positions, v.images
	var cols *core.Operand
	if !v.pointwise() {
		stride = line(positions)
		some = v.chunk(r, x.DType.Size()*v.groups*patch*stride)
		var err error
		if cols, err = scratchOf(r, x.DType, some*v.groups*patch*stride); err != nil {
			return err
		}
	}
	for n := 0; n < v.images; n += some {
		k := min(some, v.images-n)
		from := shader.Image(x, n, channels*primitive.Product3(v.In))
		if cols != nil {
			if err := v.Patches(r, from, cols, k, 1, channels, stride); err != nil {
				return err
			}
			from = cols
		}
		p := matmul.Product{
			M: v.outputs, N: positions, K: patch, Out: shader.Image(y, n, v.groups*v.outputs*positions), A: w, B: from, Alpha: 1, Reduced: v.reduced,
			ARow: patch, ACol: 1, BRow: stride, BCol: 1, CRow: positions, CCol: 1,
			Batch: batchLoop(k, v.groups, [2]int{v.groups * v.outputs * positions, v.outputs * positions}, [2]int{0, v.outputs * patch},
				[2]int{v.groups * patch * stride, patch * stride}),
		}
		if err := p.Run(r); err != nil {
			return err
		}
	}
	return nil
}

// inputGradByLibrary computes the input gradient and adds the bias, if there is one. The gradients of patches are float32, because several of
// them are added up.
func (v *convolution) inputGradByLibrary(r *shader.Recorder, c *core.Call, y, w, x, bias *core.Operand) error {
	positions, patch, channels := primitive.Product3(v.Out), v.patch(), v.groups*v.channels
	stride, some := positions, v.images
	var cols *core.Operand
	if !v.pointwise() {
		stride = line(positions)
		some = v.chunk(r, 4*v.groups*patch*stride)
		var err error
		if cols, err = v.scratch(r, some*v.groups*patch*stride); err != nil {
			return err
		}
	}
	for n := 0; n < v.images; n += some {
		k := min(some, v.images-n)
		image := shader.Image(x, n, channels*primitive.Product3(v.In))
		to := image
		if cols != nil {
			to = cols
		}
		p := matmul.Product{
			M: patch, N: positions, K: v.outputs, Out: to, A: w, B: shader.Image(y, n, v.groups*v.outputs*positions), Alpha: 1, Reduced: v.reduced,
			ARow: 1, ACol: patch, BRow: positions, BCol: 1, CRow: stride, CCol: 1,
			Batch: batchLoop(k, v.groups, [2]int{v.groups * patch * stride, patch * stride}, [2]int{0, v.outputs * patch},
				[2]int{v.groups * v.outputs * positions, v.outputs * positions}),
		}
		if err := p.Run(r); err != nil {
			return err
		}
		if cols == nil {
			continue
		}
		if err := v.Col2Im(r, cols, image, bias, k, channels, [3]int{v.groups * patch * stride, v.Taps() * stride, stride}); err != nil {
			return err
		}
	}
	if cols == nil {
		return v.addBias(r, c, x, primitive.Product3(v.In))
	}
	return nil
}

// weightGradByLibrary computes the weight gradient. K of the product runs over the positions of all images.
func (v *convolution) weightGradByLibrary(r *shader.Recorder, c *core.Call, x, y, w *core.Operand) error {
	positions, patch, channels, outputs := primitive.Product3(v.Out), v.patch(), v.groups*v.channels, v.groups*v.outputs
	some := v.chunk(r, x.DType.Size()*v.groups*patch*positions)
	room := line(some * positions)
	cols, err := scratchOf(r, x.DType, v.groups*patch*room)
	if err != nil {
		return err
	}
	grads, err := scratchOf(r, x.DType, outputs*room)
	if err != nil {
		return err
	}
	sums := w
	if some < v.images && w.DType != core.Float32 {
		if sums, err = v.scratch(r, outputs*patch); err != nil {
			return err
		}
	}
	for n := 0; n < v.images; n += some {
		k := min(some, v.images-n)
		stride := line(k * positions)
		if err := v.Patches(r, shader.Image(x, n, channels*primitive.Product3(v.In)), cols, 1, k, channels, stride); err != nil {
			return err
		}
		from, to := *shader.Image(y, n, outputs*positions), *grads
		from.Shape, from.Strides = []int{outputs, k, positions}, []int{positions, outputs * positions, 1}
		to.Shape, to.Strides = from.Shape, []int{stride, positions, 1}
		if err := copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{from}}); err != nil {
			return err
		}
		p := matmul.Product{
			M: v.outputs, N: patch, K: k * positions, Out: sums, A: grads, B: cols, Alpha: 1, Reduced: v.reduced,
			ARow: stride, ACol: 1, BRow: 1, BCol: stride, CRow: patch, CCol: 1,
			Batch: batchLoop(1, v.groups, [2]int{0, v.outputs * patch}, [2]int{0, v.outputs * stride}, [2]int{0, patch * stride}),
		}
		if n > 0 {
			p.Beta = 1
		}
		if err := p.Run(r); err != nil {
			return err
		}
	}
	if sums == w {
		return nil
	}
	from, to := *sums, *w
	from.Shape, from.Strides = []int{outputs * patch}, []int{1}
	to.Shape, to.Strides = from.Shape, from.Strides
	return copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{from}})
}
