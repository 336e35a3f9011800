package linalg

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.LinalgCholesky, choleskyCall) }

// strip is the number of columns of which a panel subtracts what those before it contribute, and of a symmetric update by a product. Of each
// strip, only the rows from its diagonal on are updated.
const strip = 256

// choleskyCall: Outs[0] = the lower triangles L of Ins[0] = L Lᵀ; Outs[1], if present, = the row, counted from 1, at which each matrix
// failed, or 0.
//
// A dispatch subtracts from a panel of columns what the strip's columns on its left contribute, and factorises it. After each strip, products
// subtract what it contributes to the columns on its right.
func choleskyCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 || x.n == 0 {
		return err
	}
	n, width := x.n, panelWidth(x.n)
	l := block{of: &c.Outs[0], row: n, col: 1, each: n * n}
	for begin := 0; begin < n; begin += strip {
		for first := begin; first < min(begin+strip, n); first += width {
			if err := x.choleskyPanel(r, l.of, begin, first, width); err != nil {
				return err
			}
		}
		for from := begin + strip; from < n; from += strip {
			left := l.at(from, begin)
			if err := x.product(r, x.whole().at(from, from), left, left.transposed(), n-from, min(strip, n-from), strip, -1, 1); err != nil {
				return err
			}
		}
		r.Flush()
	}
	if len(c.Outs) > 1 {
		return x.storeWords(r, &c.Outs[1], x.status, x.batch)
	}
	return x.report(r, c, notPositiveMatrix)
}

// panelWidth returns how many columns are factorised at a time: 32, or few for small matrices.
func panelWidth(n int) int {
	for _, width := range []int{8, 16} {
		if n <= width {
			return width
		}
	}
	return 32
}

// choleskyPanel writes columns first to first+width of L, from matrices whose lower triangles hold what is left of A but for the
// contributions of the columns of L from begin on. Each workgroup factorises the square on the diagonal, since that takes less time than
// another dispatch, and along with it as many rows below. An invocation has elements of one column in registers. The column that is
// eliminated next is passed to the others through workgroup memory.
func (x *matrices) choleskyPanel(r *shader.Recorder, l *core.Operand, begin, first, width int) error {
	const lanes = 8 // invocations for a column, and vec4 of a row of a tile
	s := shader.New(r, "cholesky")
	each := s.Specialize(width) / lanes
	slots, below := each, x.n-first-width
	if s.Flag(below > 0) {
		slots = 2 * each
	}
	groups := max(shader.Ceil(below, width), 1)
	inside := s.Flag(first > begin) // the strip
	data, status, to := s.RealsOf("data", x.data), s.WordsOf("status", x.status), s.InOut("l", l, expr.F32)
	total, perMatrix, size, at, count := s.Uint(x.batch*groups), s.Uint(groups), s.Uint(x.n), s.Uint(first), s.Uint(min(width, x.n-first))
	from := s.Uint(begin)
	return s.Run(r, x.batch*groups, func(w *shader.Text) {
		w.Shared("column", shader.Real, 2, lanes*slots)
		if inside {
			w.Shared("tile", shader.Real4, lanes*slots, lanes+1)
			w.Func("quad(at: u32, inside: bool) -> real4", "if (!inside) { return real4(); }\n  return real4(ld_l(at), ld_l(at + 1u), ld_l(at + 2u), ld_l(at + 3u));")
		}
		w.EachGroup(lanes*width, total)
		w.Add(`  let n = %s;
  let first = %s;
  let count = %s;
  let matrix = group / %s;
  let part = group %% %s;`, size, at, count, perMatrix, perMatrix)
		w.Add(`  let lane = li / %[1]du;
  let col = li %% %[1]du;
  let from_ = %[2]s + matrix * n * n + first + col;
  let to = %[3]s + matrix * n * n + first + col;
  let next = first + %[1]du * (1u + part);`, width, data, to)
		for i := range slots {
			row := fmt.Sprintf("first + lane + %du", lanes*i)
			if i >= each {
				row = fmt.Sprintf("next + lane + %du", lanes*(i-each))
			}
			w.Add(`  let row%[1]d = %[2]s;
  var a%[1]d = 0.0;
  if (row%[1]d < n && col < count) { a%[1]d = data[from_ + row%[1]d * n]; }`, i, row)
		}
		if inside {
			// The next tile is on its way while one is used.
			parts := []string{"first", "next"}[:slots/each]
			for i, part := range parts {
				w.Add(`  let from%[1]d = %[2]s + li / 8u;
  let at%[1]d = %[3]s + (matrix * n + from%[1]d) * n + li %% 8u * 4u;
  var quad%[1]d = quad(at%[1]d + %[4]s, from%[1]d < n);`, i, part, to, from)
			}
			w.Add("  for (var k = %s; k < first; k += %du) {", from, width)
			w.Barrier()
			for i := range parts {
				w.Add("    tile[li / 8u + %du][li %% 8u] = quad%d;", width*i, i)
			}
			w.Barrier()
			for i := range parts {
				w.Add("    quad%[1]d = quad(at%[1]d + k + %[2]du, from%[1]d < n && k + %[2]du < first);", i, width)
			}
			w.Add("    for (var q = 0u; q < 8u; q++) {\n      let other = tile[col][q];")
			for i := range slots {
				w.Add("      a%d = a%d - dot(tile[lane + %du][q], other);", i, i, lanes*i)
			}
			w.Add("    }\n  }")
		}
		w.Add(`  var failed = 0u;
  var own = 1.0;
  for (var step = 0u; step < count; step++) {
    let side = step & 1u;
    if (col == step) {`)
		for i := range slots {
			w.Add("      column[side][lane + %du] = a%d;", lanes*i, i)
		}
		w.Add("    }")
		w.Barrier()
		w.Add(`    let pivot = column[side][step];
    if (!(pivot > 0.0) && failed == 0u) { failed = first + step + 1u; }
    let factor = column[side][col] / pivot;
    if (col > step) {`)
		for i := range slots {
			w.Add("      a%d = a%d - column[side][lane + %du] * factor;", i, i, lanes*i)
		}
		w.Add("    } else if (col == step) { own = pivot; }\n  }\n  let root = sqrt(own);")
		for i := range slots {
			w.Add("  a%d = select(a%d / root, root, row%d == first + col);", i, i, i)
		}
		w.Add("  if (part == 0u && li == 0u && failed != 0u && status[%s + matrix] == 0u) { status[%s + matrix] = failed; }", status, status)
		for i := range slots {
			condition := ""
			if i < each {
				condition = " && part == 0u"
			}
			w.Add("  if (row%d < n && col < count%s) { st_l(to + row%d * n, select(0.0, a%d, row%d >= first + col)); }", i, condition, i, i, i)
			if i < each && slots > each {
				w.Add("  if (next + col < n) { st_l(to + (next - first) + row%d * n, 0.0); }", i)
			}
		}
	})
}
