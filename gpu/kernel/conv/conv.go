// Package conv computes convolutions and their gradients as matrix products with patches of images. The matrix of patches is stored
// (im2col), or its elements are gathered from the images during the product (implicit GEMM), by tensor cores where there are some.
package conv

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.ConvForward, convForwardCall)
	kernel.Register(contract.ConvInputGrad, convInputGradCall)
	kernel.Register(contract.ConvWeightGrad, convWeightGradCall)
}

// columnBytes limits the memory of stored patches. A convolution that needs more processes some images at a time.
const columnBytes = 256 << 20

// A convolution is a product of weights [O, C/groups, kernel...] with the patches of images. The product gathers the patches; if that is
// not faster, they are stored first.
type convolution struct {
	primitive.Window
	images, groups, channels, outputs int  // channels and outputs are those of one group
	reduced                           bool // see [contract.ConvAttrs]
}

func newConvolution(c *core.Call, x, w, y []int) *convolution {
	a, nd := contract.ConvOf(c), len(x)-2
	kernel := make([]int64, nd)
	for i := range kernel {
		kernel[i] = int64(w[2+i])
	}
	groups := int(a.Groups)
	return &convolution{
		Window: primitive.NewWindow(x, y, kernel, a.Stride, a.Padding, a.Dilation),
		images: x[0], groups: groups, channels: x[1] / groups, outputs: y[1] / groups, reduced: a.Reduced,
	}
}

// patch returns the number of elements of a patch in one group.
func (v *convolution) patch() int { return v.channels * v.Taps() }

// imagesAtOnce returns how many images are processed at a time.
func (v *convolution) imagesAtOnce(r *shader.Recorder) int {
	each := r.RealType().Size() * v.groups * v.patch() * primitive.Product3(v.Out)
	return min(max(min(columnBytes, r.GPU.Binding)/max(each, 1), 1), v.images)
}

// batchLoop returns the loop over images and groups, with the strides of the output and the two factors.
func batchLoop(images, groups int, out, a, b [2]int) shader.Loop {
	l := shader.Loop{Count: images * groups, Strides: make([][]int, 3)}
	l.Push(images, out[0], a[0], b[0])
	l.Push(groups, out[1], a[1], b[1])
	return l
}

// convForwardCall: Outs[0] = the convolution of Ins[0] with the weights Ins[1], plus the bias Ins[2] if it is present.
func convForwardCall(r *shader.Recorder, c *core.Call) error {
	x, w, y := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	v := newConvolution(c, x.Shape, w.Shape, y.Shape)
	positions, patch := primitive.Product3(v.Out), v.patch()
	if y.Numel() == 0 {
		return nil
	}
	if patch == 0 {
		zero := core.Call{Op: c.Op, Outs: []core.Operand{*y}, Ins: []core.Operand{{IsNumber: true}}}
		if err := copying.Copy(r, &zero); err != nil {
			return err
		}
		return v.addBias(r, c, y, positions)
	}
	if v.depthwise() {
		return v.depthwisePlanes(r, v.forward(), x, w, y, convBias(c), v.outputs, 1)
	}
	if v.onTensorCores(r, x.DType, w.DType, y.DType) && !v.left(r) {
		if err := v.forwardOnTensorCores(r, x, w, y); err != nil {
			return err
		}
		return v.addBias(r, c, y, positions)
	}
	if v.byLibrary(r, x.DType) {
		if err := v.forwardByLibrary(r, x, w, y); err != nil {
			return err
		}
		return v.addBias(r, c, y, positions)
	}
	if v.gathersForward(r) {
		if err := v.forwardGathered(r, x, w, y); err != nil {
			return err
		}
		return v.addBias(r, c, y, positions)
	}
	some := v.imagesAtOnce(r)
	cols, err := v.scratch(r, some*v.groups*patch*positions)
	if err != nil {
		return err
	}
	rows, err := v.scratch(r, some*v.groups*v.outputs*positions)
	if err != nil {
		return err
	}
	for n := 0; n < v.images; n += some {
		k := min(some, v.images-n)
		long := k * positions
		from := shader.Image(x, n, v.groups*v.channels*primitive.Product3(v.In))
		if err := v.Im2Col(r, from, cols, k, v.groups*v.channels, [3]int{positions, v.Taps() * long, long}); err != nil {
			return err
		}
		to := shader.Image(y, n, v.groups*v.outputs*positions)
		out := rows
		if k == 1 {
			out = to
		}
		p := matmul.Product{
			M: v.outputs, N: long, K: patch, Out: out, A: w, B: cols, Alpha: 1,
			ARow: patch, ACol: 1, BRow: long, BCol: 1, CRow: long, CCol: 1,
			Batch: batchLoop(1, v.groups, [2]int{0, v.outputs * long}, [2]int{0, v.outputs * patch}, [2]int{0, patch * long}),
		}
		if err := p.Run(r); err != nil {
			return err
		}
		if k > 1 {
			if err := v.permuteResults(r, c, rows, to, k, false); err != nil {
				return err
			}
		}
	}
	return v.addBias(r, c, y, positions)
}

// scratch returns scratch memory for n numbers of the type that programs compute with.
func (v *convolution) scratch(r *shader.Recorder, n int) (*core.Operand, error) {
	m, err := r.Reals(max(n, 1))
	return &core.Operand{Memory: m, DType: r.RealType()}, err
}

// permuteResults copies results between the layout [images, outputs, positions] of y and the layout [outputs, images, positions] of rows;
// with back, from y to rows. The latter allows a single product for all images.
func (v *convolution) permuteResults(r *shader.Recorder, c *core.Call, rows, y *core.Operand, images int, back bool) error {
	positions, outputs := primitive.Product3(v.Out), v.groups*v.outputs
	from, to := *rows, *y
	from.Shape = []int{outputs, images, positions}
	from.Strides = []int{images * positions, positions, 1}
	to.Shape, to.Strides = from.Shape, []int{positions, outputs * positions, 1}
	if back {
		from, to = to, from
	}
	return copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{from}})
}

// convBias returns the bias of a call, nil for none.
func convBias(c *core.Call) *core.Operand {
	if len(c.Ins) < 3 {
		return nil
	}
	return shader.OrNil(&c.Ins[2])
}

// addBias adds the bias Ins[2] to y, if it is present. positions is the number of elements of a channel.
func (v *convolution) addBias(r *shader.Recorder, c *core.Call, y *core.Operand, positions int) error {
	bias := convBias(c)
	if bias == nil {
		return nil
	}
	s := shader.New(r, "conv bias")
	to, b := s.InOut("y", y, expr.F32), s.In("b", bias, expr.F32, expr.Number)
	n, per, channels := s.Uint(y.Numel()), s.Uint(positions), s.Uint(y.Shape[1])
	return s.Run(r, shader.GroupsFor(y.Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Add("  st_y(%s + i, ld_y(%s + i) + ld_b(%s + (i / %s) %% %s));", to, to, b, per, channels)
	})
}

// convInputGradCall: Outs[0] = the gradient of the input, for the gradient Ins[0] of the result and the weights Ins[1], plus the bias
// Ins[2] of each channel if it is present.
func convInputGradCall(r *shader.Recorder, c *core.Call) error {
	y, w, x := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	v := newConvolution(c, x.Shape, w.Shape, y.Shape)
	positions, patch := primitive.Product3(v.Out), v.patch()
	if x.Numel() == 0 {
		return nil
	}
	bias := convBias(c)
	if v.depthwise() && v.outputs > 0 && patch*positions > 0 {
		return v.depthwiseInputs(r, y, w, x, bias)
	}
	if v.onTensorCores(r, x.DType, w.DType, y.DType) && v.inputGradIsRegular() && !v.left(r) {
		if err := v.inputGradOnTensorCores(r, y, w, x); err != nil {
			return err
		}
		return v.addBias(r, c, x, primitive.Product3(v.In))
	}
	if v.byLibrary(r, x.DType) {
		return v.inputGradByLibrary(r, c, y, w, x, bias)
	}
	if v.gathersInputs(r) {
		if err := v.inputGradGathered(r, c, y, w, x); err != nil {
			return err
		}
		return v.addBias(r, c, x, primitive.Product3(v.In))
	}
	some := v.imagesAtOnce(r)
	cols, err := v.scratch(r, some*v.groups*patch*positions)
	if err != nil {
		return err
	}
	rows, err := v.scratch(r, some*v.groups*v.outputs*positions)
	if err != nil {
		return err
	}
	for n := 0; n < v.images; n += some {
		k := min(some, v.images-n)
		long := k * positions
		if positions > 0 {
			if err := v.permuteResults(r, c, rows, shader.Image(y, n, v.groups*v.outputs*positions), k, true); err != nil {
				return err
			}
			p := matmul.Product{
				M: patch, N: long, K: v.outputs, Out: cols, A: w, B: rows, Alpha: 1,
				ARow: 1, ACol: patch, BRow: long, BCol: 1, CRow: long, CCol: 1,
				Batch: batchLoop(1, v.groups, [2]int{0, patch * long}, [2]int{0, v.outputs * patch}, [2]int{0, v.outputs * long}),
			}
			if err := p.Run(r); err != nil {
				return err
			}
		}
		to := shader.Image(x, n, v.groups*v.channels*primitive.Product3(v.In))
		if err := v.Window.Col2Im(r, cols, to, bias, k, v.groups*v.channels, [3]int{positions, v.Taps() * long, long}); err != nil {
			return err
		}
	}
	return nil
}

// convWeightGradCall: Outs[0] = the gradient of the weights, for the input Ins[0] and the gradient Ins[1] of the result. K of the product
// runs over the positions of all images.
func convWeightGradCall(r *shader.Recorder, c *core.Call) error {
	x, y, w := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	v := newConvolution(c, x.Shape, w.Shape, y.Shape)
	positions, patch := primitive.Product3(v.Out), v.patch()
	if w.Numel() == 0 {
		return nil
	}
	if v.images*positions == 0 {
		zero := core.Call{Op: c.Op, Outs: []core.Operand{*w}, Ins: []core.Operand{{IsNumber: true}}}
		return copying.Copy(r, &zero)
	}
	if v.depthwise() {
		return v.depthwiseWeights(r, x, y, w)
	}
	if v.onTensorCores(r, x.DType, y.DType) {
		return v.weightGradOnTensorCores(r, x, y, w)
	}
	if v.byLibrary(r, x.DType) {
		return v.weightGradByLibrary(r, c, x, y, w)
	}
	if v.gathersWeights(r) {
		return v.weightGradGathered(r, c, x, y, w)
	}
	some := v.imagesAtOnce(r)
	cols, err := v.scratch(r, some*v.groups*patch*positions)
	if err != nil {
		return err
	}
	// The product is that of cols and the transposed gradient, which is small in comparison. Its result is transposed too.
	outputs := v.groups * v.outputs
	transposed, err := v.scratch(r, some*outputs*positions)
	if err != nil {
		return err
	}
	sums, err := v.scratch(r, v.groups*patch*v.outputs)
	if err != nil {
		return err
	}
	for n := 0; n < v.images; n += some {
		k := min(some, v.images-n)
		long := k * positions
		from := shader.Image(x, n, v.groups*v.channels*primitive.Product3(v.In))
		if err := v.Im2Col(r, from, cols, k, v.groups*v.channels, [3]int{positions, v.Taps() * long, long}); err != nil {
			return err
		}
		grad, to := *shader.Image(y, n, outputs*positions), *transposed
		grad.Shape, grad.Strides = []int{k, positions, outputs}, []int{outputs * positions, 1, positions}
		to.Shape, to.Strides = grad.Shape, []int{positions * outputs, outputs, 1}
		if err := copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{grad}}); err != nil {
			return err
		}
		p := matmul.Product{
			M: patch, N: v.outputs, K: long, Out: sums, A: cols, B: transposed, Alpha: 1,
			ARow: long, ACol: 1, BRow: outputs, BCol: 1, CRow: v.outputs, CCol: 1,
			Batch: batchLoop(1, v.groups, [2]int{0, patch * v.outputs}, [2]int{0, patch * long}, [2]int{0, v.outputs}),
		}
		if n > 0 {
			p.Beta = 1
		}
		if err := p.Run(r); err != nil {
			return err
		}
	}
	from, to := *sums, *w
	from.Shape, from.Strides = []int{v.groups, v.outputs, patch}, []int{patch * v.outputs, 1, v.outputs}
	to.Shape, to.Strides = from.Shape, []int{v.outputs * patch, patch, 1}
	return copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{from}})
}
