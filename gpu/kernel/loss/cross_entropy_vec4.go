package loss

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// Rows of scores may begin at any element, and are still read as vec4. A few elements at both ends are read one by one.

// shifted declares a function that returns four elements of the consecutive vec4 a and b, from element phase on.
func shifted(w *shader.Text) {
	w.Func("shifted(a: real4, b: real4, phase: u32) -> real4", `let far = (phase & 2u) != 0u;
  let v = select(a, real4(a.zw, b.xy), far);
  return select(v, real4(v.yzw, select(b.x, b.z, far)), (phase & 1u) != 0u);`)
}

// vec4sOf returns statements that define head, the number of a row's elements before the first multiple of four, and vec4s, the number of
// whole vec4 behind them.
func vec4sOf(first string) string {
	return fmt.Sprintf(`  let head = min((0u - (%s + first)) & 3u, n);
  let vec4s = (n - head) >> 2u;
`, first)
}

// rowEnds returns statements that run body for each element j at the ends of a row, outside its vec4. Each is processed by one invocation.
func rowEnds(body string) string {
	return fmt.Sprintf(`  let j = select(head + 4u * vec4s + lane - 4u, lane, lane < 4u);
  if (j < select(n, head, lane < 4u) && lane < 8u) {
%s  }
`, body)
}

// gradientsVec4 writes a piece of a row's gradients as vec4. The scores may be unaligned.
func (p *classProblem) gradientsVec4(w *shader.Text, dx string, slope func(v, j string) string) {
	w.Put(vec4sOf(dx))
	w.Add(`  let begin = piece * most;
  let count = min(max(vec4s, begin) - begin, most);
  let from_x = %s + first + head;
  let phase = from_x & 3u;
  let near = (from_x >> 2u) + begin;
  let to = ((%s + first + head) >> 2u) + begin;
  let place = head + 4u * begin;`, p.x, dx)
	w.Put(primitive.Unroll("q", "count", p.width, p.several, func(numbers []string) string {
		reads, writes := "", ""
		for k, q := range numbers {
			reads += fmt.Sprintf("    let q%[1]d = %[2]s;\n    let v%[1]d = shifted(ld4_x(near + q%[1]d), ld4_x(near + q%[1]d + 1u), phase);\n", k, q)
			var parts []string
			for c := range 4 {
				parts = append(parts, slope(fmt.Sprintf("v%d.%s", k, shader.Component(c)), fmt.Sprintf("(place + q%d * 4u + %du)", k, c)))
			}
			writes += fmt.Sprintf("    st4_dx(to + q%d, real4(%s));\n", k, strings.Join(parts, ", "))
		}
		return reads + writes
	}))
	w.Add("  if (piece != 0u) { return; }")
	if p.wholeRows { // neighbours share words, so one invocation writes the last vec4, whose end is padding
		var parts []string
		for c := range 4 {
			j := fmt.Sprintf("min(4u * vec4s + %du, n - 1u)", c)
			parts = append(parts, slope("ld_x("+p.x+" + first + "+j+")", j))
		}
		w.Add("  if (lane == 0u && 4u * vec4s < n) { st4_dx(((%s + first) >> 2u) + vec4s, real4(%s)); }", dx, strings.Join(parts, ", "))
		return
	}
	w.Put(rowEnds(fmt.Sprintf("    st_dx(%s + first + j, %s);\n", dx, slope("ld_x("+p.x+" + first + j)", "j"))))
}
