package conv

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// GPUs with tensor cores can compute convolutions of 16-bit numbers by implicit GEMM in programs of their own, whose text is in folder
// tensorcore, if [shader.Tuning] says so: patches are read from the images as they are multiplied. Sums are in float32. What a library computes without stored patches
// is left to it.

const (
	minTensorCompute = 80 // the first compute capability with bfloat16 products and asynchronous copies
	tensorDepth      = 32 // patches of results are padded to a multiple of it
	tensorColumns    = 128
	weightDepth      = 64 // positions of a tile of the weights' gradient
	weightColumns    = 64
	minWeightChunk   = 512
)

// onTensorCores reports whether tensor cores compute a convolution with operands of the given dtypes.
func (v *convolution) onTensorCores(r *shader.Recorder, dtypes ...core.DType) bool {
	for _, t := range dtypes {
		if !t.IsHalf() || t != dtypes[0] {
			return false
		}
	}
	in, out := v.groups*v.channels*primitive.Product3(v.In), v.groups*v.outputs*primitive.Product3(v.Out)
	return r.GPU.TensorConvolutions && r.GPU.Compute >= minTensorCompute && v.patch() >= minLibraryPatch && v.outputs >= minLibraryOutputs && v.images > 0 && out > 0 &&
		v.images*max(in, out) < math.MaxInt32 && v.tensorColumns() < math.MaxInt32
}

// tensorColumns returns the largest number of columns, with padding, that a program counts.
func (v *convolution) tensorColumns() int {
	return v.images*max(primitive.Product3(v.In), primitive.Product3(v.Out)) + tensorColumns
}

// rowsAligned reports whether a library reads and writes rows of so many 16-bit numbers at full speed.
func rowsAligned(positions int) bool { return positions%8 == 0 }

// pairs reports whether positions can be read in twos, of channels of so many positions.
func pairs(o *core.Operand, positions int) bool { return positions%2 == 0 && shader.Base(o)%2 == 0 }

// left reports whether products of patches are left to the library: it needs no patches in memory, and rows are aligned.
func (v *convolution) left(r *shader.Recorder) bool {
	return r.GPU.Library && v.pointwise() && rowsAligned(primitive.Product3(v.Out))
}

// room returns the rows of a tap in a matrix of patches: programs read eight rows of a tap at a time.
func room(channels int) int {
	if channels > 4 {
		return shader.Ceil(channels, 8) * 8
	}
	n := 1
	for n < channels {
		n *= 2
	}
	return n
}

// A tapRange is a part of the taps: those from first on, step apart, count in all.
type tapRange struct{ first, step, count [3]int }

func (v *convolution) allTaps() tapRange {
	return tapRange{step: [3]int{1, 1, 1}, count: v.Kernel}
}

// A spreading is where positions of a window are in the results: step apart, beginning at first, in a box of the given sizes.
type spreading struct{ size, step, first [3]int }

// forwardOnTensorCores computes the forward pass without the bias.
func (v *convolution) forwardOnTensorCores(r *shader.Recorder, x, w, y *core.Operand) error {
	return v.results(r, x, w, y, v.forward(), v.allTaps(), false, nil)
}

// inputGradOnTensorCores computes the input gradient without the bias. With strides, only some taps reach a position, depending on its
// remainder: positions with the same remainders are a convolution of their own, without strides.
func (v *convolution) inputGradOnTensorCores(r *shader.Recorder, y, w, x *core.Operand) error {
	if v.Stride == [3]int{1, 1, 1} {
		return v.results(r, y, w, x, v.backward(), v.allTaps(), true, nil)
	}
	for number := range primitive.Product3(v.Stride) {
		s := v.Stride
		at := [3]int{number / (s[1] * s[2]), number / s[2] % s[1], number % s[2]}
		p, taps := v.backward(), tapRange{step: s}
		p.stride = [3]int{1, 1, 1}
		for d := range 3 {
			taps.first[d] = (at[d] + v.Padding[d]) % s[d]
			taps.count[d] = max(shader.Ceil(v.Kernel[d]-taps.first[d], s[d]), 0)
			p.positions[d] = max(shader.Ceil(v.In[d]-at[d], s[d]), 0)
			p.shift[d] = (at[d] + v.Padding[d] - taps.first[d]) / s[d]
		}
		if primitive.Product3(p.positions) == 0 {
			continue
		}
		if primitive.Product3(taps.count) > 0 {
			if err := v.results(r, y, w, x, p, taps, true, &spreading{v.In, s, at}); err != nil {
				return err
			}
			continue
		}
		to := *x
		to.Offset += (at[0]*v.In[1]+at[1])*v.In[2] + at[2]
		to.Shape = append([]int{v.images * v.groups * v.channels}, p.positions[:]...)
		to.Strides = []int{primitive.Product3(v.In), s[0] * v.In[1] * v.In[2], s[1] * v.In[2], s[2]}
		if err := copying.Copy(r, &core.Call{Outs: []core.Operand{to}, Ins: []core.Operand{{IsNumber: true}}}); err != nil {
			return err
		}
	}
	return nil
}

// inputGradIsRegular reports whether the taps that reach a position are as far apart as the stride.
func (v *convolution) inputGradIsRegular() bool {
	for d, s := range v.Stride {
		if s != 1 && (v.Dilation[d] != 1 || v.Padding[d] < 0) {
			return false
		}
	}
	return true
}

// results computes y: the products of the weights with the patches of a window over images. With back, these are the gradient of the
// results, and y is that of the input.
func (v *convolution) results(r *shader.Recorder, images, w, y *core.Operand, p slidingWindow, taps tapRange, back bool, spread *spreading) error {
	rows := v.outputs
	if back {
		rows = v.channels
	}
	depth := shader.Ceil(primitive.Product3(taps.count)*room(p.channels), tensorDepth) * tensorDepth
	packed, err := scratchOf(r, w.DType, v.groups*rows*depth)
	if err != nil {
		return err
	}
	if err := v.packWeights(r, w, packed, taps, back, depth); err != nil {
		return err
	}
	columns := v.images * primitive.Product3(p.positions)
	tile := 128
	if wide := shader.Ceil(columns, tensorColumns); rows <= 64 || shader.Ceil(rows, tile)*wide*v.groups < 2*r.GPU.Multiprocessors {
		tile = 64
	}
	t := newTensorProgram(r, "conv (tensor cores)", "results", images.DType, tile)
	t.window(p, taps.count, depth)
	t.flag("PAIRED", v.pointwise() && pairs(images, primitive.Product3(p.from)))
	t.pointer("x", "const u16", images, false)
	t.pointer("a", "const u16", packed, false)
	t.pointer("y", "u16", y, true)
	plane := primitive.Product3(p.positions)
	if spread != nil {
		plane = primitive.Product3(spread.size)
	}
	rowTiles, columnTiles := shader.Ceil(rows, tile), shader.Ceil(columns, tensorColumns)
	t.sizes(v, p, rows, columns, rowTiles, columnTiles, plane)
	t.spread(spread)
	return t.run(r, rowTiles*columnTiles*v.groups, 2*(tile*(2*tensorDepth+16)+tensorDepth*(2*tensorColumns+16)))
}

// packWeights copies weights to rows of patches, [groups, outputs, taps, room], padded with zeros; with back, outputs and channels change
// places.
func (v *convolution) packWeights(r *shader.Recorder, w, packed *core.Operand, taps tapRange, back bool, depth int) error {
	s := shader.New(r, "conv weights for tensor cores")
	to, from := s.Out("y", packed, expr.F32, expr.Number), s.In("x", w, expr.F32, expr.Number)
	all, rows, channels := v.Taps(), v.outputs, v.channels
	rowStep, channelStep := v.channels*all, all
	if back {
		rows, channels, rowStep, channelStep = channels, rows, channelStep, rowStep
	}
	n := v.groups * rows * depth
	count, rowsWord, depthWord, roomWord, channelsWord := s.Uint(n), s.Uint(rows), s.Uint(depth), s.Uint(room(channels)), s.Uint(channels)
	group, row, channel := s.Uint(v.outputs*v.channels*all), s.Uint(rowStep), s.Uint(channelStep)
	var first, step, size, kernel [3]string
	for d := range 3 {
		first[d], step[d], size[d], kernel[d] = s.Uint(taps.first[d]), s.Uint(taps.step[d]), s.Uint(taps.count[d]), s.Uint(v.Kernel[d])
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let line = i / %s;
  let place = i - line * %s;
  let tap = place / %s;
  let channel = place - tap * %s;`, depthWord, depthWord, roomWord, roomWord)
		w.Put(primitive.Unfold("k", "tap", size))
		w.Add("  var v = 0.0;")
		w.Add("  if (channel < %s && k_0 < %s) {", channelsWord, size[0])
		w.Add("    let at = ((k_0 * %s + %s) * %s + k_1 * %s + %s) * %s + k_2 * %s + %s;", step[0], first[0], kernel[1], step[1], first[1], kernel[2], step[2], first[2])
		w.Add("    v = ld_x(%s + line / %s * %s + line %% %s * %s + channel * %s + at);\n  }", from, rowsWord, group, rowsWord, row, channel)
		w.Add("  st_y(%s + i, v);", to)
	})
}

// weightGradOnTensorCores computes the weight gradient. The positions are divided into chunks, so that there are enough tiles for the GPU.
func (v *convolution) weightGradOnTensorCores(r *shader.Recorder, x, y, w *core.Operand) error {
	p, positions := v.forward(), primitive.Product3(v.Out)
	columns := shader.Ceil(v.Taps()*room(v.channels), weightColumns) * weightColumns
	tile := 128
	if v.outputs <= 64 {
		tile = 64
	}
	rowTiles, columnTiles := shader.Ceil(v.outputs, tile), columns/weightColumns
	all, tiles := v.images*positions, rowTiles*columnTiles*v.groups
	parts := min(max(2*r.GPU.Multiprocessors/tiles, 1), shader.Ceil(all, minWeightChunk))
	chunk := shader.Ceil(shader.Ceil(all, parts), weightDepth) * weightDepth
	parts = shader.Ceil(all, chunk)
	m, err := r.Temp(4 * parts * v.groups * v.outputs * columns)
	if err != nil {
		return err
	}
	sums := shader.F32Operand(m, 0, parts*v.groups*v.outputs*columns)
	t := newTensorProgram(r, "conv weights (tensor cores)", "weight_sums", x.DType, tile)
	t.window(p, v.Kernel, columns)
	t.flag("ALIGNED_A", rowsAligned(positions) && shader.Base(y)%8 == 0)
	t.flag("ALIGNED_B", rowsAligned(positions) && shader.Base(x)%8 == 0 && v.pointwise())
	t.flag("PAIRED_A", pairs(y, positions))
	t.flag("PAIRED", v.pointwise() && pairs(x, positions))
	t.pointer("x", "const u16", x, false)
	t.pointer("a", "const u16", y, false)
	t.pointer("y", "float", sums, true)
	t.sizes(v, p, v.outputs, columns, rowTiles, columnTiles, positions)
	t.word("chunk", chunk)
	t.spread(nil)
	if err := t.run(r, tiles*parts, 2*(tile+weightColumns)*(2*weightDepth+16)); err != nil {
		return err
	}
	return v.addChunks(r, sums, w, parts, columns)
}

// addChunks adds the sums of chunks, [parts, groups, outputs, columns], to weights.
func (v *convolution) addChunks(r *shader.Recorder, sums, w *core.Operand, parts, columns int) error {
	s := shader.New(r, "conv weights (sums of chunks)")
	from, to := s.In("x", sums, expr.F32, expr.Number), s.Out("y", w, expr.F32, expr.Number)
	n := v.groups * v.outputs * columns
	count, columnsWord, partsWord, roomWord := s.Uint(n), s.Uint(columns), s.Uint(parts), s.Uint(room(v.channels))
	channels, taps := s.Uint(v.channels), s.Uint(v.Taps())
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let row = i / %s;
  let column = i - row * %s;
  let tap = column / %s;
  let channel = column - tap * %s;`, columnsWord, columnsWord, roomWord, roomWord)
		w.Add("  if (tap >= %s || channel >= %s) { return; }", taps, channels)
		w.Add(`  var sum = 0.0;
  for (var j = 0u; j < %s; j++) { sum = sum + ld_x(%s + j * %s + i); }`, partsWord, from, count)
		w.Add("  st_y(%s + (row * %s + channel) * %s + tap, sum);", to, channels, taps)
	})
}
