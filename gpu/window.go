package gpu

import (
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// A window is the geometry of kernels that slide over up to three spatial dimensions; missing leading ones are 1.
type window struct {
	in, out, kernel, stride, padding, dilation [3]int
}

// newWindow takes the last nd sizes of both shapes and nd numbers of each kind.
func newWindow(large, small []int, kernel, stride, padding, dilation []int64) window {
	var w window
	for i := range 3 {
		w.in[i], w.out[i], w.kernel[i], w.stride[i], w.dilation[i] = 1, 1, 1, 1, 1
	}
	nd := len(kernel)
	for i := range nd {
		d := 3 - nd + i
		w.in[d], w.out[d], w.kernel[d] = large[len(large)-nd+i], small[len(small)-nd+i], int(kernel[i])
		w.stride[d], w.padding[d], w.dilation[d] = int(stride[i]), int(padding[i]), int(dilation[i])
	}
	return w
}

func product3(v [3]int) int { return v[0] * v[1] * v[2] }

func (w *window) taps() int { return product3(w.kernel) }

// A windowText is a window as WGSL.
type windowText struct{ in, out, kernel, stride, padding, dilation [3]string }

// bind adds the window to a shader.
func (w *window) bind(s *shader) (t windowText) {
	for i, v := range [6][3]int{w.in, w.out, w.kernel, w.stride, w.padding, w.dilation} {
		to := [6]*[3]string{&t.in, &t.out, &t.kernel, &t.stride, &t.padding, &t.dilation}[i]
		for d, n := range v {
			to[d] = s.uint(int(uint32(int32(n))))
		}
	}
	return t
}

// unfold returns statements that define a_0, a_1 and a_2, the coordinates of index i in a box of the given sizes.
func unfold(a, i string, sizes [3]string) string {
	return "  let " + a + "_2 = (" + i + ") % " + sizes[2] + ";\n" +
		"  let " + a + "_1 = ((" + i + ") / " + sizes[2] + ") % " + sizes[1] + ";\n" +
		"  let " + a + "_0 = (" + i + ") / (" + sizes[2] + " * " + sizes[1] + ");\n"
}

// reach returns statements that define x_0 to x_2, where tap k of output o falls in the input, and inside, whether it does.
func (t windowText) reach() string {
	text := ""
	for d := range 3 {
		n := itoa(d)
		text += "  let x_" + n + " = i32(o_" + n + " * " + t.stride[d] + " + k_" + n + " * " + t.dilation[d] + ") - i32(" + t.padding[d] + ");\n"
	}
	return text + "  let inside = x_0 >= 0 && x_1 >= 0 && x_2 >= 0 && x_0 < i32(" + t.in[0] + ") && x_1 < i32(" + t.in[1] + ") && x_2 < i32(" + t.in[2] + ");\n"
}

// taps returns loops over the taps, k_0 to k_2, that run body, of which tap is the number.
func (t windowText) taps(body string) string {
	return "  var tap = 0u;\n  for (var k_0 = 0u; k_0 < " + t.kernel[0] + "; k_0++) {\n  for (var k_1 = 0u; k_1 < " + t.kernel[1] + "; k_1++) {\n  for (var k_2 = 0u; k_2 < " + t.kernel[2] + "; k_2++) {\n" +
		body + "    tap++;\n  }}}\n"
}

// columns writes the patches of images to columns: element [image, channel, tap, place] at the given strides, the last being 1.
// An invocation writes all taps of a place, because divisions for each would take longer than its copy.
func (w *window) columns(r *recorder, x, y *core.Operand, images, channels int, strides [3]int) error {
	s := newShader(r, "im2col")
	t := numbersOf(x.DType)
	from, to := s.in("x", x, t, expr.Number), s.out("y", y, t, expr.Number)
	places := product3(w.out)
	n := images * channels * places
	count, placesWord, channelsWord, plane := s.uint(n), s.uint(places), s.uint(channels), s.uint(product3(w.in))
	si, sc, sk := s.uint(strides[0]), s.uint(strides[1]), s.uint(strides[2])
	g := w.bind(s)
	if n == 0 || w.taps() == 0 {
		return nil
	}
	return s.run(r, groupsFor(n), func() string {
		return each(count, "  let row = i / "+placesWord+";\n  let place = i - row * "+placesWord+";\n"+
			"  let image = row / "+channelsWord+";\n  let channel = row - image * "+channelsWord+";\n"+unfold("o", "place", g.out)+
			"  let source = "+from+" + row * "+plane+";\n  let destination = "+to+" + image * "+si+" + channel * "+sc+" + place;\n"+
			"  var v: "+wgslType(t, expr.Number)+";\n"+
			g.taps(g.reach()+"    v = "+wgslType(t, expr.Number)+"();\n"+
				"    if (inside) { v = ld_x(source + (u32(x_0) * "+g.in[1]+" + u32(x_1)) * "+g.in[2]+" + u32(x_2)); }\n"+
				"    st_y(destination + tap * "+sk+", v);\n"))
	})
}

// images adds columns, which have the given strides, up to images, the transpose of columns: each element takes what the taps
// over it have.
func (w *window) images(r *recorder, x, y, bias *core.Operand, images, channels int, strides [3]int) error {
	s := newShader(r, "col2im")
	from, to := s.in("x", x, expr.F32, expr.Number), s.out("y", y, expr.F32, expr.Number)
	n := images * channels * product3(w.in)
	count, plane, channelsWord := s.uint(n), s.uint(product3(w.in)), s.uint(channels)
	si, sc, sk := s.uint(strides[0]), s.uint(strides[1]), s.uint(strides[2])
	g := w.bind(s)
	start := "0.0"
	if s.flag(bias != nil) {
		start = "ld_b(" + s.in("b", bias, expr.F32, expr.Number) + " + channel)"
	}
	for _, step := range w.stride {
		s.flag(step == 1)
	}
	if n == 0 {
		return nil
	}
	return s.run(r, groupsFor(n), func() string {
		text := "  let row = i / " + plane + ";\n  let image = row / " + channelsWord + ";\n  let channel = row - image * " + channelsWord + ";\n" +
			unfold("x", "i - row * "+plane, g.in) + "  let source = " + from + " + image * " + si + " + channel * " + sc + ";\n  var sum = " + start + ";\n"
		body := ""
		var inside []string
		for d := range 3 {
			n := itoa(d)
			// What is before the first place wraps to a large number.
			body += "    let t_" + n + " = x_" + n + " + " + g.padding[d] + " - k_" + n + " * " + g.dilation[d] + ";\n"
			if w.stride[d] == 1 {
				body += "    let o_" + n + " = t_" + n + ";\n"
				inside = append(inside, "o_"+n+" < "+g.out[d])
				continue
			}
			body += "    let o_" + n + " = t_" + n + " / " + g.stride[d] + ";\n"
			inside = append(inside, "t_"+n+" < 0x80000000u && o_"+n+" * "+g.stride[d]+" == t_"+n+" && o_"+n+" < "+g.out[d])
		}
		body += "    if (" + strings.Join(inside, " && ") + ") {\n      sum = sum + ld_x(source + tap * " + sk +
			" + (o_0 * " + g.out[1] + " + o_1) * " + g.out[2] + " + o_2);\n    }\n"
		return each(count, text+g.taps(body)+"  st_y("+to+" + i, sum);\n")
	})
}

func init() {
	register("im2col", func(r *recorder, c *core.Call) error {
		x, y := &c.Ins[0], &c.Outs[0]
		w := newWindow(x.Shape, places(c), c.Ints[0:2], c.Ints[2:4], c.Ints[4:6], c.Ints[6:8])
		n, ch, l := x.Shape[0], x.Shape[1], product3(w.out)
		return w.columns(r, x, y, n, ch, [3]int{ch * w.taps() * l, w.taps() * l, l})
	})
	register("col2im", func(r *recorder, c *core.Call) error {
		x, y := &c.Ins[0], &c.Outs[0]
		w := newWindow(y.Shape, places(c), c.Ints[0:2], c.Ints[2:4], c.Ints[4:6], c.Ints[6:8])
		ch, l := y.Shape[1], product3(w.out)
		return w.images(r, x, y, nil, y.Shape[0], ch, [3]int{ch * w.taps() * l, w.taps() * l, l})
	})
}

// places returns the sizes of the output of im2col.
func places(c *core.Call) []int { return []int{int(c.Ints[8]), int(c.Ints[9])} }
