package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
)

// Kernels in this file work on rows, each by a workgroup whose invocations go along it.

func init() {
	for _, log := range []bool{false, true} {
		name := "softmax"
		if log {
			name = "log_softmax"
		}
		register(name, func(r *recorder, c *core.Call) error { return softmaxCall(r, c, name, log) })
		register(name+"_backward", func(r *recorder, c *core.Call) error { return softmaxBackwardCall(r, c, name, log) })
	}
}

// rowWidth returns how many invocations share a row of n elements.
func rowWidth(n int) int {
	if n <= 512 {
		return 64
	}
	return 256
}

// together returns the function whole_NAME(lane, v), which every invocation of a workgroup calls and which returns what join
// makes of all their values, in the same order each time: a few invocations join some each, and then all join what these have.
// Of the two barriers each keeps the writes of the next call from the reads of this one.
func together(name, typ, join string, width int) string {
	few := 8
	if width > 64 {
		few = 16
	}
	return fmt.Sprintf(`var<workgroup> sh_%[1]s: array<%[2]s, %[4]d>;
var<workgroup> few_%[1]s: array<%[2]s, %[5]d>;
fn join_%[1]s(a: %[2]s, b: %[2]s) -> %[2]s { return %[3]s; }
fn whole_%[1]s(lane: u32, v: %[2]s) -> %[2]s {
  sh_%[1]s[lane] = v;
  workgroupBarrier();
  if (lane < %[5]du) {
    var t = v;
%[6]s    few_%[1]s[lane] = t;
  }
  workgroupBarrier();
  var t = few_%[1]s[0];
%[7]s  return t;
}
`, name, typ, join, width, few, joins(name, "    t = join_%s(t, sh_%s[lane + %du]);\n", few, width, few), joins(name, "  t = join_%s(t, few_%s[%d]);\n", 1, few, 1))
}

// joins returns a line of text for each number from first up to last.
func joins(name, text string, first, last, step int) string {
	var b strings.Builder
	for i := first; i < last; i += step {
		fmt.Fprintf(&b, text, name, name, i)
	}
	return b.String()
}

func wholeSum(width int) string { return together("sum", "f32", "a + b", width) }

// line are the rows of a tensor along a dimension: of outer x n x inner elements those with equal outer and inner index.
type line struct{ outer, n, inner int }

func lineOf(shape []int, dim int) line {
	if len(shape) == 0 {
		return line{1, 1, 1}
	}
	return line{core.Numel(shape[:dim]), shape[dim], core.Numel(shape[dim+1:])}
}

func (l line) rows() int { return l.outer * l.inner }

// open adds the sizes to a shader and returns what writes the start of a main function with row's first position in first, and n and
// step along it.
func (l line) open(s *shader, width int) (head func() string) {
	rows, n, inner := s.uint(l.rows()), s.uint(l.n), s.uint(l.inner)
	s.choose(width / 64)
	return func() string {
		return fmt.Sprintf(entry, width) + fmt.Sprintf(`  if (group >= %s) { return; }
  let lane = li;
  let n = %s;
  let step = %s;
  let first = (group / step) * n * step + group %% step;
`, rows, n, inner)
	}
}

// openPieces is open for rows whose elements follow one another and that several workgroups share, most fours each. It returns how many
// workgroups that takes: memory is fastest where those that run together work on one stretch of it, not on a row each.
func (l line) openPieces(s *shader, width, most int) (head func() string, groups int) {
	pieces := max(ceil(l.n/4, most), 1)
	rows, n, each, fours := s.uint(l.rows()), s.uint(l.n), s.uint(pieces), s.uint(most)
	s.choose(width / 64)
	return func() string {
		return fmt.Sprintf(entry, width) + fmt.Sprintf(`  let row = group / %[1]s;
  let piece = group %% %[1]s;
  if (row >= %[2]s) { return; }
  let lane = li;
  let n = %[3]s;
  let most = %[4]s;
  let step = 1u;
  let first = row * n;
`, each, rows, n, fours)
	}, l.rows() * pieces
}

// rounds returns a loop in which the invocations of a row take the numbers up to n, each several at a time while there are as many. round
// writes what one does with those it is given; i is a name for the loop.
func rounds(i, n string, width, several int, round func(numbers []string) string) string {
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
		fmt.Fprintf(&b, "  for (; %s + %du < %s; %s += %du) {\n%s  }\n", i, (count-1)*width, n, i, count*width, round(numbers))
	}
	return b.String() + "  }\n"
}

// along returns a loop over the row's elements, at position at. Long rows are taken four elements at a time, so that as many
// loads are on their way.
func along(width int, body string) string {
	several := 1
	if width > 64 {
		several = 4
	}
	return rounds("i", "n", width, several, func(numbers []string) string {
		var b strings.Builder
		for _, j := range numbers {
			fmt.Fprintf(&b, "    {\n    let j = %s;\n    let at = first + j * step;\n    %s\n    }\n", j, body)
		}
		return b.String()
	})
}

func softmaxCall(r *recorder, c *core.Call, name string, log bool) error {
	s := newShader(r, name)
	t := s.row(lineOf(c.Ins[0].Shape, int(c.Ints[0])))
	t.in("x", &c.Ins[0])
	t.out("y", &c.Outs[0])
	head := t.open(r.device.adapter.Software)
	if t.line.n == 0 {
		return nil
	}
	return s.run(r, t.line.rows(), func() string {
		// The exponential does not know NaN, which makes the sum NaN instead, and so all of the row.
		term, value, last := "t = t + plait_exp_share($x - most);", "plait_exp_share($x - most) * share", "  let share = 1.0 / total;\n"
		if t.held > 0 && !log {
			term, value = "$x = plait_exp_share($x - most); t = t + $x;", "$x * share"
		}
		if log {
			value, last = "($x - most) - log_total", "  let log_total = plait_log_f32(total);\n"
		}
		return together("most", "f32", "max(a, b)", t.width) + wholeSum(t.width) + head() +
			"  var m = -" + infinity + ";\n  var bits = 0u;\n" + t.pass("m = max(m, $x); bits = max(bits, bitcast<u32>($x) & 0x7fffffffu);") +
			"  let most = whole_most(lane, m);\n  var t = select(0.0, plait_nan(), bits > 0x7f800000u);\n" + t.pass(term) +
			"  let total = whole_sum(lane, t);\n" + last + t.pass("$y = "+value+";") + "}\n"
	})
}

func softmaxBackwardCall(r *recorder, c *core.Call, name string, log bool) error {
	s := newShader(r, name+"_backward")
	t := s.row(lineOf(c.Ins[0].Shape, int(c.Ints[0])))
	t.in("y", &c.Ins[0])
	t.in("g", &c.Ins[1])
	t.out("dx", &c.Outs[0])
	head := t.open(r.device.adapter.Software)
	if t.line.n == 0 {
		return nil
	}
	return s.run(r, t.line.rows(), func() string {
		term, value := "$y * $g", "$y * ($g - total)"
		if log {
			term, value = "$g", "$g - plait_exp_f32($y) * total"
		}
		return wholeSum(t.width) + head() + "  var t = 0.0;\n" + t.pass("t = t + "+term+";") +
			"  let total = whole_sum(lane, t);\n" + t.pass("$dx = "+value+";") + "}\n"
	})
}
