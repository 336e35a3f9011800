package primitive

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// partSide is how many fours of columns a workgroup sums the parts of. On an H200 1, 2 and 8 take a microsecond more or as long.
const partSide = 4

// SumPartials writes the sums of columns over pieces. Each piece has n numbers for each of the outputs that has parts: all of outs, if all is
// there, which takes them one after the other, and otherwise those that are not nil.
func SumPartials(r *shader.Recorder, parts core.Memory, pieces, n int, outs []*core.Operand, all *core.Operand) error {
	var kept []*core.Operand
	for _, o := range outs {
		if o != nil || all != nil {
			kept = append(kept, o)
		}
	}
	s := shader.New(r, "sum of parts")
	from := s.FloatsOf("parts", parts)
	wide, side, typ := 1, 16, "f32"
	if s.Flag(n%4 == 0) {
		wide, side, typ = 4, partSide, "vec4<f32>"
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
	return s.Run(r, shader.Ceil(columns, side), func() string {
		const few = 8 // lanes that sum those of all
		lanes := shader.Threads / side
		var b strings.Builder
		fmt.Fprintf(&b, "var<workgroup> sh: array<%s, %d>;\n"+shader.Entry, typ, shader.Threads, shader.Threads)
		fmt.Fprintf(&b, "  if (group * %[1]du >= %[2]s) { return; }\n  let lane = li / %[1]du;\n  let column = group * %[1]du + li %% %[1]du;\n"+
			"  let at = %[3]s / %[4]du + min(column, %[2]s - 1u);\n  var t = %[5]s();\n", side, count, from, wide, typ)
		b.WriteString(Unroll("i", piecesWord, lanes, 4, func(numbers []string) string {
			text := ""
			for k, j := range numbers {
				text += fmt.Sprintf("    let v%d = parts[at + %s * %s];\n", k, j, count)
			}
			for k := range numbers {
				text += fmt.Sprintf("    t = t + v%d;\n", k)
			}
			return text
		}))
		b.WriteString("  sh[li] = t;\n  workgroupBarrier();\n")
		fmt.Fprintf(&b, "  if (lane < %du) {\n", few)
		for l := few; l < lanes; l += few {
			fmt.Fprintf(&b, "    t = t + sh[li + %du];\n", l*side)
		}
		fmt.Fprintf(&b, "    sh[li] = t;\n  }\n  workgroupBarrier();\n  if (lane > 0u || column >= %s) { return; }\n", count)
		for l := 1; l < few; l++ {
			fmt.Fprintf(&b, "  t = t + sh[li + %du];\n", l*side)
		}
		fmt.Fprintf(&b, "  let first = column * %du;\n", wide)
		value := func(c int) string {
			if wide == 1 {
				return "t"
			}
			return "t." + string("xyzw"[c])
		}
		for c := range wide {
			if whole != "" {
				fmt.Fprintf(&b, "  st_all(%s + first + %du, %s);\n", whole, c, value(c))
			}
		}
		for i, o := range kept {
			if o == nil {
				continue
			}
			fmt.Fprintf(&b, "  if (first >= %du * %[2]s && first < %[3]du * %[2]s) {\n", i, length, i+1)
			for c := range wide {
				fmt.Fprintf(&b, "    st_y%d(%s + first - %du * %s + %du, %s);\n", i, to[i], i, length, c, value(c))
			}
			b.WriteString("  }\n")
		}
		b.WriteString("}\n")
		return b.String()
	})
}
