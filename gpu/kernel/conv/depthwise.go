package conv

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// A depthwise convolution has one input channel in each group. As a product it would have few rows, so it is computed directly: an
// invocation has a few neighbouring results, which share the elements that they read.

const (
	// rowResults is how many neighbouring results an invocation computes.
	rowResults = 4
	// rowTaps is the size of a kernel's last dimension up to which the loop over it is unrolled.
	rowTaps = 13
)

// depthwise reports whether every group has one input channel, which has elements.
func (v *convolution) depthwise() bool { return v.channels == 1 && primitive.Product3(v.In) > 0 }

// offset returns the offset of tap k of neighbouring result r from the first element that an invocation may read.
func (g *slidingWindow) offset(r, k int) int { return r*g.stride[2] + k*g.step[2] }

// depthwisePlanes convolves planes: y has each channel of each image; outputs is how many channels of y read one channel of x, and terms how
// many channels of x are summed in one of y. One of the two is 1. bias is nil or has a number for each channel of y.
func (v *convolution) depthwisePlanes(r *shader.Recorder, g slidingWindow, x, w, y, bias *core.Operand, outputs, terms int) error {
	s := shader.New(r, "depthwise")
	from, weights, to := s.In("x", x, expr.F32, expr.Number), s.In("w", w, expr.F32, expr.Number), s.Out("y", y, expr.F32, expr.Number)
	start := "0.0"
	if s.Flag(bias != nil) {
		start = "ld_b(" + s.In("b", bias, expr.F32, expr.Number) + " + channel)"
	}
	channels, quads := v.groups*outputs, shader.Ceil(g.positions[2], rowResults)
	units := v.images * channels * g.positions[0] * g.positions[1] * quads
	count, quadsWord, channelsWord := s.Uint(units), s.Uint(quads), s.Uint(channels)
	outputsWord, termsWord, taps := s.Uint(outputs), s.Uint(terms), s.Uint(v.Taps())
	number := func(v [3]int) (words [3]string) {
		for d, n := range v {
			words[d] = s.Uint(int(uint32(int32(n))))
		}
		return words
	}
	positions, size, shift, kernel := number(g.positions), number(g.from), number(g.shift), number(v.Kernel)
	stride, step := number(g.stride), number(g.step)
	flat := s.Flag(g.positions[0] == 1 && v.Kernel[0] == 1)
	several := s.Flag(terms > 1)
	unrolled := s.Flag(v.Kernel[2] <= rowTaps && (rowResults-1)*g.stride[2] <= rowTaps && max(g.step[2], -g.step[2]) <= rowTaps)
	if unrolled {
		s.Specialize(v.Kernel[2])
		s.Specialize(g.stride[2])
		s.Specialize(max(g.step[2], 0))
		s.Specialize(max(-g.step[2], 0))
	}
	return s.Run(r, shader.GroupsFor(units), func(t *shader.Text) {
		t.Each(count)
		t.Add(`  var rest = i / %[1]s;
  let o_2 = (i - rest * %[1]s) * %[2]du;
  let line = rest;
  var o_0 = 0u;`, quadsWord, rowResults)
		t.Add("  rest = line / %[1]s;\n  let o_1 = line - rest * %[1]s;", positions[1])
		if !flat {
			t.Add("  let volume = rest / %[1]s;\n  o_0 = rest - volume * %[1]s;\n  rest = volume;", positions[0])
		}
		t.Add(`  let plane = rest;
  let image = plane / %[1]s;
  let channel = plane - image * %[1]s;`, channelsWord)
		for k := range rowResults {
			t.Add("  var a%d = %s;", k, start)
		}
		t.Add("  let first_2 = i32(o_2 * %s) + i32(%s);\n  let end_2 = i32(%s);", stride[2], shift[2], size[2])
		if several {
			t.Add("  for (var term = 0u; term < %s; term++) {", termsWord)
			t.Add("  let source_channel = channel * %s + term;\n  let source_plane = plane * %s + term;\n  let weight_channel = source_channel;", termsWord, termsWord)
		} else {
			t.Add("  let source_plane = plane / %s;\n  let weight_channel = channel;", outputsWord)
		}
		t.Add(`  let source = %s + source_plane * (%s * %s * %s);
  var tap = %s + weight_channel * %s;`, from, size[0], size[1], size[2], weights, taps)
		if flat {
			t.Add("  let x_0 = 0;\n  {")
		} else {
			t.Add("  for (var k_0 = 0u; k_0 < %s; k_0++) {\n  let x_0 = i32(o_0 * %s) + i32(%s) + i32(k_0) * i32(%s);", kernel[0], stride[0], shift[0], step[0])
		}
		t.Add(`  for (var k_1 = 0u; k_1 < %[1]s; k_1++) {
  let x_1 = i32(o_1 * %[2]s) + i32(%[3]s) + i32(k_1) * i32(%[4]s);
  if (x_0 >= 0 && x_0 < i32(%[5]s) && x_1 >= 0 && x_1 < i32(%[6]s)) {
    let row = source + (u32(x_0) * %[6]s + u32(x_1)) * %[7]s;`, kernel[1], stride[1], shift[1], step[1], size[0], size[1], size[2])
		load := func(at string) string {
			return fmt.Sprintf("select(0.0, ld_x(row + u32(clamp(%[1]s, 0, end_2 - 1))), %[1]s >= 0 && %[1]s < end_2)", at)
		}
		if unrolled {
			var used []int
			for k := range v.Kernel[2] {
				for r := range rowResults {
					used = append(used, g.offset(r, k))
				}
			}
			slices.Sort(used)
			used = slices.Compact(used)
			for n, d := range used {
				t.Add("    let e%d = %s;", n, load(fmt.Sprintf("(first_2 + (%d))", d)))
			}
			for k := range v.Kernel[2] {
				t.Add("    let w%d = ld_w(tap + %du);", k, k)
				for r := range rowResults {
					n, _ := slices.BinarySearch(used, g.offset(r, k))
					t.Add("    a%d = a%d + e%d * w%d;", r, r, n, k)
				}
			}
		} else {
			t.Add("    for (var k_2 = 0u; k_2 < %s; k_2++) {\n    let k = first_2 + i32(k_2) * i32(%s);\n    let w0 = ld_w(tap + k_2);", kernel[2], step[2])
			for r := range rowResults {
				t.Add("    a%d = a%d + %s * w0;", r, r, load(fmt.Sprintf("(k + %d * i32(%s))", r, stride[2])))
			}
			t.Add("    }")
		}
		t.Add("  }\n  tap = tap + %s;\n  }}", kernel[2])
		if several {
			t.Add("  }")
		}
		t.Add("  let out = %s + ((plane * %s + o_0) * %s + o_1) * %s;", to, positions[0], positions[1], positions[2])
		for k := range rowResults {
			t.Add("  if (o_2 + %du < %s) { st_y(out + o_2 + %du, a%d); }", k, positions[2], k, k)
		}
	})
}

// depthwiseInputGrad computes the gradient x of the input for strides other than 1: each element takes the results that read it.
func (v *convolution) depthwiseInputGrad(r *shader.Recorder, y, w, x, bias *core.Operand) error {
	s := shader.New(r, "depthwise input")
	from, weights, to := s.In("y", y, expr.F32, expr.Number), s.In("w", w, expr.F32, expr.Number), s.Out("x", x, expr.F32, expr.Number)
	start := "0.0"
	if s.Flag(bias != nil) {
		start = "ld_b(" + s.In("b", bias, expr.F32, expr.Number) + " + channel)"
	}
	n := v.images * v.groups * primitive.Product3(v.In)
	count, channels, terms, taps := s.Uint(n), s.Uint(v.groups), s.Uint(v.outputs), s.Uint(v.Taps())
	at := v.Bind(s)
	var stride [3]string // constants, so that compilers replace divisions
	for d, n := range v.Stride {
		stride[d] = strconv.Itoa(s.Specialize(n)) + "u"
	}
	return s.Run(r, shader.GroupsFor(n), func(t *shader.Text) {
		t.Each(count)
		t.Add(`  var rest = i / %[1]s;
  let x_2 = i - rest * %[1]s;
  let line = rest / %[2]s;
  let x_1 = rest - line * %[2]s;
  let plane = line / %[3]s;
  let x_0 = line - plane * %[3]s;
  let image = plane / %[4]s;
  let channel = plane - image * %[4]s;`, at.In[2], at.In[1], at.In[0], channels)
		t.Add("  var sum = %s;\n  for (var term = 0u; term < %s; term++) {", start, terms)
		t.Add("  let source = %s + (plane * %s + term) * (%s * %s * %s);", from, terms, at.Out[0], at.Out[1], at.Out[2])
		t.Add("  let first = %s + (channel * %s + term) * %s;", weights, terms, taps)
		for d := range 3 { // positions before the first wrap to large numbers
			t.Add(`  for (var k_%[1]d = 0u; k_%[1]d < %[2]s; k_%[1]d++) {
  let t_%[1]d = x_%[1]d + %[3]s - k_%[1]d * %[4]s;
  let o_%[1]d = t_%[1]d / %[5]s;
  if (t_%[1]d < 0x80000000u && o_%[1]d * %[5]s == t_%[1]d && o_%[1]d < %[6]s) {`, d, at.Kernel[d], at.Padding[d], at.Dilation[d], stride[d], at.Out[d])
		}
		t.Add(`  sum = sum + ld_y(source + (o_0 * %s + o_1) * %s + o_2) * ld_w(first + (k_0 * %s + k_1) * %s + k_2);
  }}}}}}}
  st_x(%s + i, sum);`, at.Out[1], at.Out[2], at.Kernel[1], at.Kernel[2], to)
	})
}

// depthwiseInputs computes the gradient x of the input, plus a bias if that is not nil.
func (v *convolution) depthwiseInputs(r *shader.Recorder, y, w, x, bias *core.Operand) error {
	if primitive.Product3(v.Stride) != 1 {
		return v.depthwiseInputGrad(r, y, w, x, bias)
	}
	return v.depthwisePlanes(r, v.backward(), y, w, x, bias, 1, v.outputs)
}
