// Package primitive has building blocks for kernels of several families: rows, windows, sorts, prefix sums and partial sums.
package primitive

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// RowThreads returns the number of invocations that share a row of n elements.
func RowThreads(n int) int {
	if n <= 512 {
		return 64
	}
	return 256
}

// An Axis splits a tensor of outer x n x inner elements into rows along the middle dimension.
type Axis struct{ Outer, N, Inner int }

// AxisOf returns the axis of a shape along a dimension.
func AxisOf(shape []int, dim int) Axis {
	if len(shape) == 0 {
		return Axis{1, 1, 1}
	}
	return Axis{core.Numel(shape[:dim]), shape[dim], core.Numel(shape[dim+1:])}
}

// Rows returns the number of rows.
func (l Axis) Rows() int { return l.Outer * l.Inner }

// Open adds the sizes to a shader and returns what writes the start of a main function with row's first position in first, and n and
// step along it.
func (l Axis) Open(s *shader.Builder, width int) (head func(w *shader.Text)) {
	rows, n, inner := s.Uint(l.Rows()), s.Uint(l.N), s.Uint(l.Inner)
	s.Specialize(width / 64)
	return func(w *shader.Text) {
		w.EachGroup(width, rows)
		w.Add(`  let lane = li;
  let n = %s;
  let step = %s;
  let first = (group / step) * n * step + group %% step;`, n, inner)
	}
}

// OpenPieces is open for rows whose elements follow one another and that several workgroups share, most vec4 each. It returns how many
// workgroups that takes: memory is fastest where those that run together work on one stretch of it, not on a row each.
func (l Axis) OpenPieces(s *shader.Builder, width, most int) (head func(w *shader.Text), groups int) {
	pieces := max(shader.Ceil(l.N/4, most), 1)
	rows, n, each, mostWord := s.Uint(l.Rows()), s.Uint(l.N), s.Uint(pieces), s.Uint(most)
	s.Specialize(width / 64)
	return func(w *shader.Text) {
		w.Main(width)
		w.Add(`  let row = group / %[1]s;
  let piece = group %% %[1]s;
  if (row >= %[2]s) { return; }
  let lane = li;
  let n = %[3]s;
  let most = %[4]s;
  let step = 1u;
  let first = row * n;`, each, rows, n, mostWord)
	}, l.Rows() * pieces
}

// Unroll returns a loop in which the invocations of a row take the numbers up to n, each several at a time while there are as many. body
// returns what one does with those it is given; i is a name for the loop.
func Unroll(i, n string, width, several int, body func(numbers []string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  {\n  var %s = lane;\n", i)
	counts := []int{several, 1}
	if several == 1 {
		counts = counts[1:]
	}
	for _, count := range counts {
		var numbers []string
		for k := range count {
			numbers = append(numbers, fmt.Sprintf("(%s + %du)", i, k*width))
		}
		fmt.Fprintf(&b, "  for (; %s + %du < %s; %s += %du) {\n%s  }\n", i, (count-1)*width, n, i, count*width, body(numbers))
	}
	return fmt.Sprintf("%s  }\n", b.String())
}

// Along returns a loop over the row's elements, at position at. Long rows are taken four elements at a time, so that as many
// loads are on their way.
func Along(width int, body string) string {
	several := 1
	if width > 64 {
		several = 4
	}
	return Unroll("i", "n", width, several, func(numbers []string) string {
		var b strings.Builder
		for _, j := range numbers {
			fmt.Fprintf(&b, "    {\n    let j = %s;\n    let at = first + j * step;\n    %s\n    }\n", j, body)
		}
		return b.String()
	})
}
