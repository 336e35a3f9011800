package copying

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// joinsRows reports whether a copy joins rows that lie apart, and whose length is no multiple of four, in contiguous memory. Results are
// then stored four at a time across the ends of rows. l is the loop over both.
func joinsRows(l *shader.Loop, out, in *core.Operand) bool {
	if len(l.Sizes) != 2 || !out.DType.IsFloat() || out.DType == core.Float64 || !in.DType.IsFloat() || in.DType == core.Float64 {
		return false
	}
	cols := l.Sizes[1]
	return cols > 4 && cols%4 != 0 && l.Count%4 == 0 && l.Count < math.MaxInt32 && l.Strides[0][0] == cols && l.Strides[0][1] == 1 &&
		l.Strides[1][0] > cols && l.Strides[1][1] == 1 && shader.Vec4(out)
}

// joinRows copies the rows.
func joinRows(r *shader.Recorder, l *shader.Loop, out, in *core.Operand) error {
	s := shader.New(r, "copy (rows)")
	x, y := s.In("x", in, expr.F32, expr.Number), s.Out("y", out, expr.F32, expr.Number)
	s.Bindings[1].Vec4 = true
	n, cols, apart := s.Uint(l.Count/4), s.Uint(l.Sizes[1]), s.Uint(l.Strides[1][0])
	return s.Run(r, shader.GroupsFor(l.Count/4), func(w *shader.Text) {
		w.Each(n)
		w.Add(`  let col = 4u * i %% %s;
  let at = %s + 4u * i / %s * %s + col;
  let gap = %s - %s;`, cols, x, cols, apart, apart, cols)
		for q := range 4 {
			w.Add("  let v%d = ld_x(at + %du + select(0u, gap, col + %du >= %s));", q, q, q, cols)
		}
		w.Add("  st4_y((%s >> 2u) + i, real4(v0, v1, v2, v3));", y)
	})
}
