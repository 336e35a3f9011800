package primitive

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A Window is the geometry of sliding windows over up to three spatial dimensions. Missing leading dimensions have size 1.
type Window struct {
	In, Out, Kernel, Stride, Padding, Dilation [3]int
}

// NewWindow returns the window for the last spatial sizes of both shapes. The number of spatial dimensions is the length of kernel.
func NewWindow(large, small []int, kernel, stride, padding, dilation []int64) Window {
	var w Window
	for i := range 3 {
		w.In[i], w.Out[i], w.Kernel[i], w.Stride[i], w.Dilation[i] = 1, 1, 1, 1, 1
	}
	nd := len(kernel)
	for i := range nd {
		d := 3 - nd + i
		w.In[d], w.Out[d], w.Kernel[d] = large[len(large)-nd+i], small[len(small)-nd+i], int(kernel[i])
		w.Stride[d], w.Padding[d], w.Dilation[d] = int(stride[i]), int(padding[i]), int(dilation[i])
	}
	return w
}

// Product3 returns the product of three sizes.
func Product3(v [3]int) int { return v[0] * v[1] * v[2] }

// Taps returns the number of elements of a window.
func (g *Window) Taps() int { return Product3(g.Kernel) }

// A WindowText is a Window whose numbers are expressions.
type WindowText struct{ In, Out, Kernel, Stride, Padding, Dilation [3]string }

// Bind adds the window's numbers to a program.
func (g *Window) Bind(s *shader.Builder) (t WindowText) {
	for i, v := range [6][3]int{g.In, g.Out, g.Kernel, g.Stride, g.Padding, g.Dilation} {
		to := [6]*[3]string{&t.In, &t.Out, &t.Kernel, &t.Stride, &t.Padding, &t.Dilation}[i]
		for d, n := range v {
			to[d] = s.Uint(int(uint32(int32(n))))
		}
	}
	return t
}

// BindConstants is [Window.Bind], but kernel, stride, padding and dilation are constants of the program, and so are dimensions of size 1.
// Compilers then replace divisions by them, and remove loops of one iteration.
func (g *Window) BindConstants(s *shader.Builder) (t WindowText) {
	constant := func(n int) string { return strconv.Itoa(s.Specialize(n)) + "u" }
	for d := range 3 {
		t.Kernel[d], t.Stride[d], t.Padding[d], t.Dilation[d] = constant(g.Kernel[d]), constant(g.Stride[d]), constant(g.Padding[d]), constant(g.Dilation[d])
		t.In[d], t.Out[d] = "1u", "1u"
		if !s.Flag(g.In[d] == 1 && g.Out[d] == 1) {
			t.In[d], t.Out[d] = s.Uint(g.In[d]), s.Uint(g.Out[d])
		}
	}
	return t
}

// UnfoldPlane returns statements that define plane and a_0 to a_2, the coordinates of index i in a list of boxes of the given sizes.
func UnfoldPlane(a, i string, sizes [3]string) string {
	return fmt.Sprintf(`  let %[1]s_line = %[2]s / %[5]s;
  let %[1]s_2 = %[2]s - %[1]s_line * %[5]s;
  let %[1]s_sheet = %[1]s_line / %[4]s;
  let %[1]s_1 = %[1]s_line - %[1]s_sheet * %[4]s;
  let plane = %[1]s_sheet / %[3]s;
  let %[1]s_0 = %[1]s_sheet - plane * %[3]s;
`, a, i, sizes[0], sizes[1], sizes[2])
}

// Unfold returns statements that define a_0, a_1 and a_2, the coordinates of index i in a box of the given sizes.
func Unfold(a, i string, sizes [3]string) string {
	return fmt.Sprintf(`  let %[1]s_2 = (%[2]s) %% %[3]s;
  let %[1]s_1 = ((%[2]s) / %[3]s) %% %[4]s;
  let %[1]s_0 = (%[2]s) / (%[3]s * %[4]s);
`, a, i, sizes[2], sizes[1])
}

// inputPosition returns statements that define x_0 to x_2, the input position of tap k of output o, and inside, whether it is in the input.
func (t WindowText) inputPosition() string {
	text := ""
	for d := range 3 {
		n := strconv.Itoa(d)
		text += fmt.Sprintf("  let x_%[1]s = i32(o_%[1]s * %[2]s + k_%[1]s * %[3]s) - i32(%[4]s);\n", n, t.Stride[d], t.Dilation[d], t.Padding[d])
	}
	return fmt.Sprintf("%s  let inside = x_0 >= 0 && x_1 >= 0 && x_2 >= 0 && x_0 < i32(%s) && x_1 < i32(%s) && x_2 < i32(%s);\n", text, t.In[0], t.In[1], t.In[2])
}

// taps returns a loop over the taps, k_0 to k_2, that runs body. tap is the number of the tap.
func (t WindowText) taps(body string) string {
	return fmt.Sprintf(`  var tap = 0u;
  for (var k_0 = 0u; k_0 < %s; k_0++) {
  for (var k_1 = 0u; k_1 < %s; k_1++) {
  for (var k_2 = 0u; k_2 < %s; k_2++) {
%s    tap++;
  }}}
`, t.Kernel[0], t.Kernel[1], t.Kernel[2], body)
}

// Im2Col writes the patches of images to columns: element [image, channel, tap, position], with the given strides and a last stride of 1.
// An invocation writes all taps of a position, because divisions for each tap would take longer than copying it.
func (g *Window) Im2Col(r *shader.Recorder, x, y *core.Operand, images, channels int, strides [3]int) error {
	s := shader.New(r, "im2col")
	t := shader.ComputeType(x.DType)
	from, to := s.In("x", x, t, expr.Number), s.Out("y", y, t, expr.Number)
	places := Product3(g.Out)
	n := images * channels * places
	count, placesWord, channelsWord, plane := s.Uint(n), s.Uint(places), s.Uint(channels), s.Uint(Product3(g.In))
	si, sc, sk := s.Uint(strides[0]), s.Uint(strides[1]), s.Uint(strides[2])
	at := g.Bind(s)
	if n == 0 || g.Taps() == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let row = i / %s;
  let place = i - row * %s;
  let image = row / %s;
  let channel = row - image * %s;`, placesWord, placesWord, channelsWord, channelsWord)
		w.Put(Unfold("o", "place", at.Out))
		w.Add(`  let source = %s + row * %s;
  let destination = %s + image * %s + channel * %s + place;`, from, plane, to, si, sc)
		w.Add("  var v: %s;", shader.TypeName(t, expr.Number))
		w.Put(at.taps(fmt.Sprintf(`%s    v = %s();
    if (inside) { v = ld_x(source + (u32(x_0) * %s + u32(x_1)) * %s + u32(x_2)); }
    st_y(destination + tap * %s, v);
`, at.inputPosition(), shader.TypeName(t, expr.Number), at.In[1], at.In[2], sk)))
	})
}

// Col2Im is the transpose of Im2Col: each element of images is the sum of the taps that read it, plus bias if that is not nil. strides are
// those of the columns.
func (g *Window) Col2Im(r *shader.Recorder, x, y, bias *core.Operand, images, channels int, strides [3]int) error {
	s := shader.New(r, "col2im")
	from, to := s.In("x", x, expr.F32, expr.Number), s.Out("y", y, expr.F32, expr.Number)
	n := images * channels * Product3(g.In)
	count, plane, channelsWord := s.Uint(n), s.Uint(Product3(g.In)), s.Uint(channels)
	si, sc, sk := s.Uint(strides[0]), s.Uint(strides[1]), s.Uint(strides[2])
	at := g.Bind(s)
	start := "0.0"
	if s.Flag(bias != nil) {
		start = "ld_b(" + s.In("b", bias, expr.F32, expr.Number) + " + channel)"
	}
	for _, step := range g.Stride {
		s.Flag(step == 1)
	}
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let row = i / %s;
  let image = row / %s;
  let channel = row - image * %s;`, plane, channelsWord, channelsWord)
		w.Put(Unfold("x", "i - row * "+plane, at.In))
		w.Add(`  let source = %s + image * %s + channel * %s;
  var sum = %s;`, from, si, sc, start)
		body := ""
		var inside []string
		for d := range 3 {
			n := strconv.Itoa(d)
			// Positions before the first wrap to large numbers.
			body += fmt.Sprintf("    let t_%[1]s = x_%[1]s + %[2]s - k_%[1]s * %[3]s;\n", n, at.Padding[d], at.Dilation[d])
			if g.Stride[d] == 1 {
				body += fmt.Sprintf("    let o_%s = t_%s;\n", n, n)
				inside = append(inside, "o_"+n+" < "+at.Out[d])
				continue
			}
			body += fmt.Sprintf("    let o_%s = t_%s / %s;\n", n, n, at.Stride[d])
			inside = append(inside, "t_"+n+" < 0x80000000u && o_"+n+" * "+at.Stride[d]+" == t_"+n+" && o_"+n+" < "+at.Out[d])
		}
		body += fmt.Sprintf(`    if (%s) {
      sum = sum + ld_x(source + tap * %s + (o_0 * %s + o_1) * %s + o_2);
    }
`, strings.Join(inside, " && "), sk, at.Out[1], at.Out[2])
		w.Put(at.taps(body))
		w.Add("  st_y(%s + i, sum);", to)
	})
}
