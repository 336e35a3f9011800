package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Convolutions by products one of whose factors is gathered from images, so that patches are never stored. A patch has its elements
// tap by tap, and channel by channel in each, so that those which a tile needs mostly are of one tap.

// fewBytes returns of how many bytes, of patches and of results in an order of their own, a GPU does not notice that they are stored:
// its caches have room for them.
var fewBytes = func(d *Device) int {
	if d.adapter.Software {
		return 0
	}
	return 32 << 20
}

// gathers reports whether a product gathers the convolution's patches, so that these and more bytes are not stored. The taps of all
// dimensions must have room in a word, and the tables in a buffer.
func (v *convolution) gathers(r *recorder, more int) bool {
	places := max(product3(v.in), product3(v.out))
	return v.depth() > 0 && v.outputs > 0 && v.kernel[0]+v.kernel[1]+v.kernel[2] <= 32 &&
		max(8*(v.images*places+max(v.channels, v.outputs)*v.taps()), v.resultBytes()) <= r.device.limits.Binding &&
		4*v.images*v.groups*v.depth()*product3(v.out)+more >= fewBytes(r.device)
}

// gathersForward reports whether the results are computed by gathering patches.
func (v *convolution) gathersForward(r *recorder) bool { return v.gathers(r, v.resultBytes()) }

// gathersWeights reports whether the gradient of the weights is.
func (v *convolution) gathersWeights(r *recorder) bool { return v.gathers(r, 0) }

// gathersInputs reports whether the gradient of the input is computed by gathering that of the results. With strides, most taps
// of an element fall between places, and a product would multiply zeros; with few channels it would have few rows.
func (v *convolution) gathersInputs(r *recorder) bool {
	return v.gathers(r, v.resultBytes()) && product3(v.stride) == 1 && v.channels >= fewChannels && product3(v.out) > 0
}

// fewChannels is with how many channels rows of tiles are used well enough.
const fewChannels = 24

// resultBytes is the size of the results, or of their gradient, as scratch memory.
func (v *convolution) resultBytes() int { return 4 * v.images * v.groups * v.outputs * product3(v.out) }

// A sliding is how patches lie in images: tap k of place o is at o*stride + shift + k*step.
type sliding struct {
	places, from, stride, shift, step [3]int
	channels                          int
}

// forward returns how the results see the input.
func (v *convolution) forward() sliding {
	g := sliding{places: v.out, from: v.in, stride: v.stride, step: v.dilation, channels: v.channels}
	for d, p := range v.padding {
		g.shift[d] = -p
	}
	return g
}

// backward returns how the input sees the results where strides are 1.
func (v *convolution) backward() sliding {
	g := sliding{places: v.in, from: v.out, stride: v.stride, shift: v.padding, channels: v.outputs}
	for d, n := range v.dilation {
		g.step[d] = -n
	}
	return g
}

// gather returns the gather of the patches of images, which lie across.
func (v *convolution) gather(r *recorder, p sliding) (*gather, error) {
	depth, places := p.channels*v.taps(), v.images*product3(p.places)
	m, err := r.temp(8 * (depth + places))
	if err != nil {
		return nil, err
	}
	g := &gather{
		tables: &core.Operand{Memory: m, DType: core.Int64}, elements: depth, places: places, channels: p.channels, step: product3(p.from),
	}
	s := newShader(r, "conv tables")
	to := s.out("t", g.tables, expr.I64, expr.Number)
	n, deep, channels, step := s.uint(depth+places), s.uint(depth), s.uint(p.channels), s.uint(g.step)
	per, image := s.uint(product3(p.places)), s.uint(v.groups*p.channels*g.step)
	var sizes, kernel, from, stride, shift, along [3]string
	for d := range 3 {
		sizes[d], kernel[d], from[d] = s.uint(p.places[d]), s.uint(v.kernel[d]), s.uint(p.from[d])
		stride[d], shift[d], along[d] = s.uint(p.stride[d]), s.uint(p.shift[d]), s.uint(p.step[d])
	}
	return g, s.run(r, groupsFor(depth+places), func() string {
		var w strings.Builder
		// What is before an image wraps to a large number.
		w.WriteString("  if (i < " + deep + ") {\n  let tap = i / " + channels + ";\n" + unfold("k", "tap", kernel))
		w.WriteString("  let need = (1u << k_0) | (1u << (" + kernel[0] + " + k_1)) | (1u << (" + kernel[0] + " + " + kernel[1] + " + k_2));\n")
		fmt.Fprintf(&w, "  st_t(%s + i, vec2<u32>((i - tap * %s) * %s + (k_0 * %s * %s + k_1 * %s) * %s + k_2 * %s, need));\n  return;\n  }\n",
			to, channels, step, along[0], from[1], along[1], from[2], along[2])
		w.WriteString("  let place = i - " + deep + ";\n  let image = place / " + per + ";\n" + unfold("o", "place - image * "+per, sizes))
		w.WriteString("  var have = 0u;\n  var bit = 1u;\n")
		for d := range 3 {
			fmt.Fprintf(&w, "  let x_%d = o_%d * %s + %s;\n", d, d, stride[d], shift[d])
			fmt.Fprintf(&w, "  for (var k = 0u; k < %s; k++) {\n    if (x_%d + k * %s < %s) { have |= bit; }\n    bit <<= 1u;\n  }\n", kernel[d], d, along[d], from[d])
		}
		fmt.Fprintf(&w, "  st_t(%s + i, vec2<u32>(image * %s + (x_0 * %s + x_1) * %s + x_2, have));\n", to, image, from[1], from[2])
		return each(n, w.String())
	})
}

// product returns the product of weights [groups, depth, rows], each group's transposed, with the patches of images.
func (v *convolution) product(g *gather, w, from, to *core.Operand, rows int, p sliding) product {
	places, depth := product3(p.places), g.elements
	return product{
		m: rows, n: v.images * places, k: depth, out: to, a: w, b: from, alpha: 1,
		// Strides of b for which it is read one element at a time.
		ar: 1, ac: rows, br: 1, bc: 1, cr: places, cc: 1,
		batch:  stackOf(1, v.groups, [2]int{0, rows * places}, [2]int{0, depth * rows}, [2]int{0, p.channels * g.step}),
		gather: g, wide: places, gap: min(v.images-1, 1) * (v.groups*rows - 1) * places,
	}
}

// forwardGathered is convForwardCall without the bias.
func (v *convolution) forwardGathered(r *recorder, x, w, y *core.Operand) error {
	g, err := v.gather(r, v.forward())
	if err != nil {
		return err
	}
	turned, err := v.room(r, w.Numel())
	if err != nil {
		return err
	}
	if err := v.turnWeights(r, w, turned, false); err != nil {
		return err
	}
	p := v.product(g, turned, x, y, v.outputs, v.forward())
	return p.tiles(r)
}

// inputGradGathered is convInputGradCall without the bias.
func (v *convolution) inputGradGathered(r *recorder, c *core.Call, y, w, x *core.Operand) error {
	g, err := v.gather(r, v.backward())
	if err != nil {
		return err
	}
	turned, err := v.room(r, w.Numel())
	if err != nil {
		return err
	}
	from, to := *w, *turned
	taps := v.taps()
	from.Shape = []int{v.groups, taps, v.outputs, v.channels}
	from.Strides = []int{v.outputs * v.channels * taps, 1, v.channels * taps, taps}
	to.Shape, to.Strides = from.Shape, []int{v.outputs * v.channels * taps, v.outputs * v.channels, v.channels, 1}
	if err := copyCall(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{from}}); err != nil {
		return err
	}
	p := v.product(g, turned, y, x, v.channels, v.backward())
	return p.tiles(r)
}

// weightGradGathered is convWeightGradCall.
func (v *convolution) weightGradGathered(r *recorder, c *core.Call, x, y, w *core.Operand) error {
	g, err := v.gather(r, v.forward())
	if err != nil {
		return err
	}
	places, depth, outputs := product3(v.out), v.depth(), v.groups*v.outputs
	long := v.images * places
	turned, err := v.room(r, outputs*long)
	if err != nil {
		return err
	}
	sums, err := v.room(r, outputs*depth)
	if err != nil {
		return err
	}
	grad, to := *y, *turned
	grad.Shape, grad.Strides = []int{v.images, places, outputs}, []int{outputs * places, 1, places}
	to.Shape, to.Strides = grad.Shape, []int{places * outputs, outputs, 1}
	if err := copyCall(r, &core.Call{Op: c.Op, Outs: []core.Operand{to}, Ins: []core.Operand{grad}}); err != nil {
		return err
	}
	g.rows = true
	p := product{
		// Strides of a for which it is read one element at a time.
		m: depth, n: v.outputs, k: long, out: sums, a: x, b: turned, alpha: 1,
		ar: 1, ac: 1, br: outputs, bc: 1, cr: v.outputs, cc: 1,
		batch:  stackOf(1, v.groups, [2]int{0, depth * v.outputs}, [2]int{0, v.channels * g.step}, [2]int{0, v.outputs}),
		gather: g,
	}
	if err := p.tiles(r); err != nil {
		return err
	}
	return v.turnWeights(r, w, sums, true)
}

// turnWeights copies weights [groups, outputs, channels, taps] to [groups, taps, channels, outputs], or back, by squares in workgroup
// memory, so that reads and writes are of neighbours.
func (v *convolution) turnWeights(r *recorder, w, turned *core.Operand, back bool) error {
	const side = 32
	s := newShader(r, "conv weights")
	from, to := w, turned
	if s.flag(back) {
		from, to = to, from
	}
	x, y := s.in("x", from, expr.F32, expr.Number), s.out("y", to, expr.F32, expr.Number)
	outputs, depth, channels, taps := s.uint(v.outputs), s.uint(v.depth()), s.uint(v.channels), s.uint(v.taps())
	high, wide := ceil(v.outputs, side), ceil(v.depth(), side)
	highWord, wideWord, count := s.uint(high), s.uint(wide), s.uint(high*wide*v.groups)
	return s.run(r, high*wide*v.groups, func() string {
		var text strings.Builder
		fmt.Fprintf(&text, "var<workgroup> square: array<array<f32, %d>, %d>;\n", side+1, side)
		text.WriteString(eachGroup(threads, count))
		fmt.Fprintf(&text, "  let row = group / %s;\n  let batch = row / %s * %s * %s;\n", wideWord, highWord, outputs, depth)
		fmt.Fprintf(&text, "  let o = row %% %s * %du;\n  let e = group %% %s * %du;\n", highWord, side, wideWord, side)
		square := func(element, output, body string) {
			for l := range side * side / threads {
				fmt.Fprintf(&text, "  {\n    let far = (li + %du) / %du;\n    let near = li %% %du;\n    let element = e + %s;\n    let output = o + %s;\n",
					l*threads, side, side, element, output)
				fmt.Fprintf(&text, "    if (element < %s && output < %s) { %s; }\n  }\n", depth, outputs, body)
			}
		}
		plain := "batch + output * " + depth + " + element"
		other := "batch + (element % " + taps + " * " + channels + " + element / " + taps + ") * " + outputs + " + output"
		if !back {
			square("near", "far", "square[far][near] = ld_x("+x+" + "+plain+")")
			text.WriteString("  workgroupBarrier();\n")
			square("far", "near", "st_y("+y+" + "+other+", square[near][far])")
		} else {
			square("far", "near", "square[near][far] = ld_x("+x+" + "+other+")")
			text.WriteString("  workgroupBarrier();\n")
			square("near", "far", "st_y("+y+" + "+plain+", square[far][near])")
		}
		return text.String() + "}\n"
	})
}
