package primitive

import (
	"fmt"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// vec4Columns is the number of vec4 columns whose partial sums one workgroup adds. On an H200, 1, 2 and 8 are up to a microsecond slower.
const vec4Columns = 4

// SumPartials adds partial sums: parts has n numbers for each output in each piece. The sums go to all, one output after the other, if all
// is not nil, and to the outs that are not nil.
func SumPartials(r *shader.Recorder, parts core.Memory, pieces, n int, outs []*core.Operand, all *core.Operand) error {
	var kept []*core.Operand
	for _, o := range outs {
		if o != nil || all != nil {
			kept = append(kept, o)
		}
	}
	s := shader.New(r, "sum of parts")
	from := s.RealsOf("parts", parts)
	wide, side, typ := 1, 16, shader.Real
	if s.Flag(n%4 == 0) {
		wide, side, typ = 4, vec4Columns, shader.Real4
		s.Bindings[0].Vec4 = true
	}
	to := make([]string, len(kept))
	s.Specialize(len(kept))
	for i, o := range kept {
		if s.Flag(o != nil) {
			to[i] = s.Out("y"+strconv.Itoa(i), o, expr.F32, expr.Number)
		}
	}
	whole := ""
	if s.Flag(all != nil) {
		whole = s.Out("all", all, expr.F32, expr.Number)
	}
	s.Specialize(side)
	columns := n / wide * len(kept)
	count, piecesWord, length := s.Uint(columns), s.Uint(pieces), s.Uint(n)
	return s.Run(r, shader.Ceil(columns, side), func(w *shader.Text) {
		const few = 8 // lanes of the last step, which add the sums of all lanes
		lanes := shader.Threads / side
		w.Shared("sh", typ, shader.Threads)
		w.Main(shader.Threads)
		w.Add(`  if (group * %[1]du >= %[2]s) { return; }
  let lane = li / %[1]du;
  let column = group * %[1]du + li %% %[1]du;
  let at = %[3]s / %[4]du + min(column, %[2]s - 1u);
  var t = %[5]s();`, side, count, from, wide, typ)
		w.Put(Unroll("i", piecesWord, lanes, 4, func(numbers []string) string {
			text := ""
			for k, j := range numbers {
				text += fmt.Sprintf("    let v%d = parts[at + %s * %s];\n", k, j, count)
			}
			for k := range numbers {
				text += fmt.Sprintf("    t = t + v%d;\n", k)
			}
			return text
		}))
		w.Add("  sh[li] = t;")
		w.Barrier()
		w.Add("  if (lane < %du) {", few)
		for l := few; l < lanes; l += few {
			w.Add("    t = t + sh[li + %du];", l*side)
		}
		w.Add(`    sh[li] = t;
  }`)
		w.Barrier()
		w.Add("  if (lane > 0u || column >= %s) { return; }", count)
		for l := 1; l < few; l++ {
			w.Add("  t = t + sh[li + %du];", l*side)
		}
		w.Add("  let first = column * %du;", wide)
		value := func(c int) string {
			if wide == 1 {
				return "t"
			}
			return "t." + shader.Component(c)
		}
		for c := range wide {
			if whole != "" {
				w.Add("  st_all(%s + first + %du, %s);", whole, c, value(c))
			}
		}
		for i, o := range kept {
			if o == nil {
				continue
			}
			w.Add("  if (first >= %du * %[2]s && first < %[3]du * %[2]s) {", i, length, i+1)
			for c := range wide {
				w.Add("    st_y%d(%s + first - %du * %s + %du, %s);", i, to[i], i, length, c, value(c))
			}
			w.Add("  }")
		}
	})
}
