package conv

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// Implicit GEMM: one factor of the product is gathered from images, so patches are never stored. The elements of a patch are ordered by
// tap, then by channel, so that most elements of a tile belong to the same tap.

// gathers reports whether the product gathers the patches. It does if storing them, and more bytes besides, would take PatchBytes or more.
// The taps of all dimensions must fit a 32-bit mask, and the tables a binding.
func (v *convolution) gathers(r *shader.Recorder, more int) bool {
	positions := max(primitive.Product3(v.In), primitive.Product3(v.Out))
	return v.patch() > 0 && v.outputs > 0 && v.Kernel[0]+v.Kernel[1]+v.Kernel[2] <= 32 &&
		max(8*(v.images*positions+max(v.channels, v.outputs)*v.Taps()), v.resultBytes()) <= r.GPU.Binding &&
		4*v.images*v.groups*v.patch()*primitive.Product3(v.Out)+more >= r.GPU.PatchBytes
}

// gathersForward reports whether the forward product gathers patches.
func (v *convolution) gathersForward(r *shader.Recorder) bool { return v.gathers(r, v.resultBytes()) }

// gathersWeights reports whether the product for the weight gradient gathers patches.
func (v *convolution) gathersWeights(r *shader.Recorder) bool { return v.gathers(r, 0) }

// gathersInputs reports whether the input gradient is computed by gathering the gradient of the results. It is not with strides other than
// 1, for which a product would mostly multiply zeros, nor with few channels, for which it would have few rows.
func (v *convolution) gathersInputs(r *shader.Recorder) bool {
	return v.gathers(r, v.resultBytes()) && primitive.Product3(v.Stride) == 1 && v.channels >= minGatheredChannels && primitive.Product3(v.Out) > 0
}

// minGatheredChannels is the number of channels from which rows of tiles are used well enough.
const minGatheredChannels = 24

// resultBytes returns the size of the results, or of their gradient, in float32.
func (v *convolution) resultBytes() int {
	return 4 * v.images * v.groups * v.outputs * primitive.Product3(v.Out)
}

// A slidingWindow is the geometry of patches in images: tap k of position o reads element o*stride + shift + k*step.
type slidingWindow struct {
	positions, from, stride, shift, step [3]int
	channels                             int
}

// forward returns the window of the results over the input.
func (v *convolution) forward() slidingWindow {
	g := slidingWindow{positions: v.Out, from: v.In, stride: v.Stride, step: v.Dilation, channels: v.channels}
	for d, p := range v.Padding {
		g.shift[d] = -p
	}
	return g
}

// backward returns the window of the input over the results, for strides of 1.
func (v *convolution) backward() slidingWindow {
	g := slidingWindow{positions: v.In, from: v.Out, stride: v.Stride, shift: v.Padding, channels: v.outputs}
	for d, n := range v.Dilation {
		g.step[d] = -n
	}
	return g
}

// gather computes the tables that describe the patches of images as the factor b.
func (v *convolution) gather(r *shader.Recorder, p slidingWindow) (*matmul.Gather, error) {
	patch, positions := p.channels*v.Taps(), v.images*primitive.Product3(p.positions)
	m, err := r.Temp(8 * (patch + positions))
	if err != nil {
		return nil, err
	}
	g := &matmul.Gather{
		Tables: &core.Operand{Memory: m, DType: core.Int64}, Elements: patch, Places: positions, Channels: p.channels, Step: primitive.Product3(p.from),
	}
	s := shader.New(r, "conv tables")
	to := s.Out("t", g.Tables, expr.I64, expr.Number)
	n, patchWord, channels, step := s.Uint(patch+positions), s.Uint(patch), s.Uint(p.channels), s.Uint(g.Step)
	per, image := s.Uint(primitive.Product3(p.positions)), s.Uint(v.groups*p.channels*g.Step)
	var sizes, kernel, from, stride, shift, along [3]string
	for d := range 3 {
		sizes[d], kernel[d], from[d] = s.Uint(p.positions[d]), s.Uint(v.Kernel[d]), s.Uint(p.from[d])
		stride[d], shift[d], along[d] = s.Uint(p.stride[d]), s.Uint(p.shift[d]), s.Uint(p.step[d])
	}
	return g, s.Run(r, shader.GroupsFor(patch+positions), func(w *shader.Text) {
		w.Each(n)
		// A coordinate before the image wraps to a large number.
		w.Add(`  if (i < %s) {
  let tap = i / %s;`, patchWord, channels)
		w.Put(primitive.Unfold("k", "tap", kernel))
		w.Add("  let need = (1u << k_0) | (1u << (%s + k_1)) | (1u << (%s + %s + k_2));", kernel[0], kernel[0], kernel[1])
		w.Add("  st_t(%s + i, pair((i - tap * %s) * %s + (k_0 * %s * %s + k_1 * %s) * %s + k_2 * %s, need));", to, channels, step, along[0], from[1], along[1], from[2], along[2])
		w.Add(`  return;
  }`)
		w.Add(`  let place = i - %s;
  let image = place / %s;`, patchWord, per)
		w.Put(primitive.Unfold("o", "place - image * "+per, sizes))
		w.Add(`  var have = 0u;
  var bit = 1u;`)
		for d := range 3 {
			w.Add("  let x_%d = o_%d * %s + %s;", d, d, stride[d], shift[d])
			w.Add(`  for (var k = 0u; k < %s; k++) {
    if (x_%d + k * %s < %s) { have |= bit; }
    bit <<= 1u;
  }`, kernel[d], d, along[d], from[d])
		}
		w.Add("  st_t(%s + i, pair(image * %s + (x_0 * %s + x_1) * %s + x_2, have));", to, image, from[1], from[2])
	})
}

// product returns the product of transposed weights [groups, patch, rows] with the patches of images.
func (v *convolution) product(g *matmul.Gather, w, from, to *core.Operand, rows int, p slidingWindow) matmul.Product {
	positions, patch := primitive.Product3(p.positions), g.Elements
	return matmul.Product{
		M: rows, N: v.images * positions, K: patch, Out: to, A: w, B: from, Alpha: 1,
		// These strides make the tile load b element by element.
		ARow: 1, ACol: rows, BRow: 1, BCol: 1, CRow: positions, CCol: 1,
		Batch:  batchLoop(1, v.groups, [2]int{0, rows * positions}, [2]int{0, patch * rows}, [2]int{0, p.channels * g.Step}),
		Gather: g, GapEvery: positions, Gap: min(v.images-1, 1) * (v.groups*rows - 1) * positions,
	}
}

// forwardGathered computes the forward pass without the bias by implicit GEMM.
func (v *convolution) forwardGathered(r *shader.Recorder, x, w, y *core.Operand) error {
	g, err := v.gather(r, v.forward())
	if err != nil {
		return err
	}
	transposed, err := v.scratch(r, w.Numel())
	if err != nil {
		return err
	}
	if err := v.transposeWeights(r, w, transposed, false); err != nil {
		return err
	}
	p := v.product(g, transposed, x, y, v.outputs, v.forward())
	return p.RunTiles(r)
}

// inputGradGathered computes the input gradient without the bias by implicit GEMM.
func (v *convolution) inputGradGathered(r *shader.Recorder, c *core.Call, y, w, x *core.Operand) error {
	g, err := v.gather(r, v.backward())
	if err != nil {
		return err
	}
	transposed, err := v.scratch(r, w.Numel())
	if err != nil {
		return err
	}
	from, to := *w, *transposed
	taps := v.Taps()
	from.Shape = []int{v.groups, taps, v.outputs, v.channels}
	from.Strides = []int{v.outputs * v.channels * taps, 1, v.channels * taps, taps}
	to.Shape, to.Strides = from.Shape, []int{v.outputs * v.channels * taps, v.outputs * v.channels, v.channels, 1}
	if err := copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{from}}); err != nil {
		return err
	}
	p := v.product(g, transposed, y, x, v.channels, v.backward())
	return p.RunTiles(r)
}

// weightGradGathered computes the weight gradient by implicit GEMM.
func (v *convolution) weightGradGathered(r *shader.Recorder, c *core.Call, x, y, w *core.Operand) error {
	g, err := v.gather(r, v.forward())
	if err != nil {
		return err
	}
	positions, patch, outputs := primitive.Product3(v.Out), v.patch(), v.groups*v.outputs
	long := v.images * positions
	transposed, err := v.scratch(r, outputs*long)
	if err != nil {
		return err
	}
	sums, err := v.scratch(r, outputs*patch)
	if err != nil {
		return err
	}
	grad, to := *y, *transposed
	grad.Shape, grad.Strides = []int{v.images, positions, outputs}, []int{outputs * positions, 1, positions}
	to.Shape, to.Strides = grad.Shape, []int{positions * outputs, outputs, 1}
	if err := copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{grad}}); err != nil {
		return err
	}
	g.Rows = true
	p := matmul.Product{
		// These strides make the tile load a element by element.
		M: patch, N: v.outputs, K: long, Out: sums, A: x, B: transposed, Alpha: 1,
		ARow: 1, ACol: 1, BRow: outputs, BCol: 1, CRow: v.outputs, CCol: 1,
		Batch:  batchLoop(1, v.groups, [2]int{0, patch * v.outputs}, [2]int{0, v.channels * g.Step}, [2]int{0, v.outputs}),
		Gather: g,
	}
	if err := p.RunTiles(r); err != nil {
		return err
	}
	return v.transposeWeights(r, w, sums, true)
}

// transposeWeights copies weights [groups, outputs, channels, taps] to [groups, taps, channels, outputs], or back. It goes by squares
// through workgroup memory, so that reads and writes are coalesced.
func (v *convolution) transposeWeights(r *shader.Recorder, w, transposed *core.Operand, back bool) error {
	const side = 32
	s := shader.New(r, "conv weights")
	from, to := w, transposed
	if s.Flag(back) {
		from, to = to, from
	}
	x, y := s.In("x", from, expr.F32, expr.Number), s.Out("y", to, expr.F32, expr.Number)
	outputs, patch, channels, taps := s.Uint(v.outputs), s.Uint(v.patch()), s.Uint(v.channels), s.Uint(v.Taps())
	high, wide := shader.Ceil(v.outputs, side), shader.Ceil(v.patch(), side)
	highWord, wideWord, count := s.Uint(high), s.Uint(wide), s.Uint(high*wide*v.groups)
	return s.Run(r, high*wide*v.groups, func(w *shader.Text) {
		w.Shared("square", shader.Real, side, side+1)
		w.EachGroup(shader.Threads, count)
		w.Add(`  let row = group / %s;
  let batch = row / %s * %s * %s;`, wideWord, highWord, outputs, patch)
		w.Add(`  let o = row %% %s * %du;
  let e = group %% %s * %du;`, highWord, side, wideWord, side)
		square := func(element, output, body string) {
			for l := range side * side / shader.Threads {
				w.Add(`  {
    let far = (li + %du) / %du;
    let near = li %% %du;
    let element = e + %s;
    let output = o + %s;`, l*shader.Threads, side, side, element, output)
				w.Add(`    if (element < %s && output < %s) { %s; }
  }`, patch, outputs, body)
			}
		}
		plain := "batch + output * " + patch + " + element"
		other := "batch + (element % " + taps + " * " + channels + " + element / " + taps + ") * " + outputs + " + output"
		if !back {
			square("near", "far", "square[far][near] = ld_x("+x+" + "+plain+")")
			w.Barrier()
			square("far", "near", "st_y("+y+" + "+other+", square[near][far])")
		} else {
			square("far", "near", "square[near][far] = ld_x("+x+" + "+other+")")
			w.Barrier()
			square("near", "far", "st_y("+y+" + "+plain+", square[far][near])")
		}
	})
}
