// Package primitive has building blocks for kernels of several families: rows, windows, sorts, prefix sums and partial sums.
package primitive

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// RowThreads returns the number of invocations for a row of n elements.
func RowThreads(n int) int {
	if n <= 512 {
		return 64
	}
	return 256
}

// An Axis views a tensor as [outer, n, inner], whose rows are along the middle dimension.
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

// Open adds the sizes to a program with one workgroup for each row. It returns a function that opens the main function and defines first,
// the index of the row's first element, n, and step, the stride along the row.
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

// OpenPieces is [Axis.Open] for contiguous rows that several workgroups share. Each processes most vec4. It returns the number of
// workgroups. Memory is fastest if workgroups that run at the same time read neighbouring addresses, instead of a row each.
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

// Unroll returns a loop in which the invocations of a row share the numbers up to n. An iteration takes several numbers; a second loop
// takes the remaining ones one by one. body returns the statements for a list of numbers. i is the name of the loop variable.
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

// Along returns a loop over a row's elements, with index at. Long rows take four elements in each iteration, so that four loads are in
// flight.
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
