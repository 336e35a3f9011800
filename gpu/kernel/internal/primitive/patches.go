package primitive

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// Patches writes the patches of images to y, whose element [line, channel, tap, position] has a last stride of 1. A line has the positions of
// some images, one after the other, and stride elements, a multiple of four; those behind the last position become 0. An invocation writes
// four positions at a time, for every tap.
func (g *Window) Patches(r *shader.Recorder, x, y *core.Operand, lines, images, channels, stride int) error {
	s := shader.New(r, "patches")
	from, to := s.In("x", x, expr.F32, expr.Number), s.Out("y", y, expr.F32, expr.Number)
	s.Bindings[1].Vec4 = true
	n := lines * channels * (stride / 4)
	count, channelsWord, plane, places := s.Uint(n), s.Uint(channels), s.Uint(Product3(g.In)), s.Uint(Product3(g.Out))
	imagesWord, long, wide := s.Uint(images), s.Uint(images*Product3(g.Out)), s.Uint(stride)
	at := g.Bind(s)
	taps := s.Uint(g.Taps())
	if n == 0 || g.Taps() == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  let row = i / (%s / 4u);\n  let first = (i - row * (%s / 4u)) * 4u;", wide, wide)
		w.Add("  let line = row / %s;\n  let channel = row - line * %s;", channelsWord, channelsWord)
		w.Add("  let destination = %s + row * %s * %s + first;", to, taps, wide)
		body := ""
		for q := range 4 {
			w.Add("  let image%d = (first + %du) / %s;", q, q, places)
			w.Put(Unfold(fmt.Sprintf("at%d", q), fmt.Sprintf("first + %du - image%d * %s", q, q, places), at.Out))
			w.Add("  let source%d = %s + ((line * %s + image%d) * %s + channel) * %s;", q, from, imagesWord, q, channelsWord, plane)
			body += fmt.Sprintf(`    var v%[1]d = 0.0;
    {
    let o_0 = at%[1]d_0;
    let o_1 = at%[1]d_1;
    let o_2 = at%[1]d_2;
%[2]s    if (inside && first + %[1]du < %[3]s) { v%[1]d = ld_x(source%[1]d + (u32(x_0) * %[4]s + u32(x_1)) * %[5]s + u32(x_2)); }
    }
`, q, at.inputPosition(), long, at.In[1], at.In[2])
		}
		w.Put(at.taps(fmt.Sprintf("%s    st4_y((destination + tap * %s) >> 2u, real4(v0, v1, v2, v3));\n", body, wide)))
	})
}
