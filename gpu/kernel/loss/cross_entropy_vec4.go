package loss

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// Rows of scores are read as vec4 wherever they begin. A few elements at both ends are read one by one.

// shifted writes a function that returns the vec4 starting phase elements into the consecutive vec4 a and b.
func shifted(w *shader.Text) {
	w.Func("shifted(a: real4, b: real4, phase: u32) -> real4", `let far = (phase & 2u) != 0u;
  let v = select(a, real4(a.zw, b.xy), far);
  return select(v, real4(v.yzw, select(b.x, b.z, far)), (phase & 1u) != 0u);`)
}

// vec4sOf returns statements for a row that begins at a position: head elements come before the first multiple of four, then follow whole
// vec4.
func vec4sOf(first string) string {
	return fmt.Sprintf(`  let head = min((0u - (%s + first)) & 3u, n);
  let vec4s = (n - head) >> 2u;
`, first)
}

// ends returns statements that some invocations run, each for one element j at the ends of a row, outside its vec4.
func ends(body string) string {
	return fmt.Sprintf(`  let j = select(head + 4u * vec4s + lane - 4u, lane, lane < 4u);
  if (j < select(n, head, lane < 4u) && lane < 8u) {
%s  }
`, body)
}

// slopesByVec4 writes a piece of a row's gradients as vec4, of scores that may lie across two vec4.
func (p *classProblem) slopesByVec4(w *shader.Text, dx string, slope func(v, j string) string) {
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
			reads += fmt.Sprintf("    let q%[1]d = %[2]s;\n    let v%[1]d = shifted(x[near + q%[1]d], x[near + q%[1]d + 1u], phase);\n", k, q)
			var parts []string
			for c := range 4 {
				parts = append(parts, slope(fmt.Sprintf("v%d.%s", k, shader.Component(c)), fmt.Sprintf("(place + q%d * 4u + %du)", k, c)))
			}
			writes += fmt.Sprintf("    dx[to + q%d] = real4(%s);\n", k, strings.Join(parts, ", "))
		}
		return reads + writes
	}))
	w.Add("  if (piece != 0u) { return; }")
	w.Put(ends(fmt.Sprintf("    st_dx(%s + first + j, %s);\n", dx, slope("ld_x("+p.x+" + first + j)", "j"))))
}
