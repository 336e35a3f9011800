package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
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
	register("layer_norm", layerNormCall)
	register("layer_norm_backward", layerNormBackwardCall)
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

// open adds the sizes to a shader and returns the start of a main function with row's first position in first, and n and
// step along it.
func (l line) open(s *shader, width int) string {
	rows, n, inner := s.uint(l.rows()), s.uint(l.n), s.uint(l.inner)
	s.choose(width / 64)
	return fmt.Sprintf(entry, width) + fmt.Sprintf(`  if (group >= %s) { return; }
  let lane = li;
  let n = %s;
  let step = %s;
  let first = (group / step) * n * step + group %% step;
`, rows, n, inner)
}

// openPieces is open for rows whose elements follow one another and that several workgroups share, most fours each. It returns how many
// workgroups that takes: memory is fastest where those that run together work on one stretch of it, not on a row each.
func (l line) openPieces(s *shader, width, most int) (text string, groups int) {
	pieces := max(ceil(l.n/4, most), 1)
	rows, n, each, fours := s.uint(l.rows()), s.uint(l.n), s.uint(pieces), s.uint(most)
	s.choose(width / 64)
	return fmt.Sprintf(entry, width) + fmt.Sprintf(`  let row = group / %[1]s;
  let piece = group %% %[1]s;
  if (row >= %[2]s) { return; }
  let lane = li;
  let n = %[3]s;
  let most = %[4]s;
  let step = 1u;
  let first = row * n;
`, each, rows, n, fours), l.rows() * pieces
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
		return together("most", "f32", "max(a, b)", t.width) + wholeSum(t.width) + head +
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
		return wholeSum(t.width) + head + "  var t = 0.0;\n" + t.pass("t = t + "+term+";") +
			"  let total = whole_sum(lane, t);\n" + t.pass("$dx = "+value+";") + "}\n"
	})
}

// layerNormCall: y, stats [mean, 1/deviation] = f(x, weight, bias) with ints rows, n, rms and float eps.
func layerNormCall(r *recorder, c *core.Call) error {
	rows, n, rms := int(c.Ints[0]), int(c.Ints[1]), c.Ints[2] != 0
	s := newShader(r, "layer_norm")
	t := s.row(line{rows, n, 1})
	t.in("x", &c.Ins[0])
	t.out("y", &c.Outs[0])
	affine := ""
	for i, name := range []string{"w", "b"} {
		if o := &c.Ins[1+i]; s.flag(o.Present()) {
			t.same(name, o)
			affine += "v = v " + []string{"*", "+"}[i] + " $" + name + "; "
		}
	}
	stats := ""
	if s.flag(c.Outs[1].Present()) {
		stats = s.out("stats", &c.Outs[1], expr.F32, expr.Number)
	}
	eps, rowsWord := s.float(c.Floats[0]), s.uint(rows)
	s.flag(rms)
	head := t.open(r.device.adapter.Software)
	if rows == 0 || n == 0 {
		return nil
	}
	return s.run(r, rows, func() string {
		text := wholeSum(t.width) + head + "  var t = 0.0;\n"
		if rms {
			text += "  let mean = 0.0;\n"
		} else {
			text += t.pass("t = t + $x;") + "  let mean = whole_sum(lane, t) / f32(n);\n  t = 0.0;\n"
		}
		text += t.pass("let d = $x - mean; t = t + d * d;") +
			"  let scale = 1.0 / sqrt(whole_sum(lane, t) / f32(n) + " + eps + ");\n"
		if stats != "" {
			text += "  if (lane == 0u) { st_stats(" + stats + " + group, mean); st_stats(" + stats + " + " + rowsWord + " + group, scale); }\n"
		}
		return text + t.pass("var v = ($x - mean) * scale; "+affine+"$y = v;") + "}\n"
	})
}

// layerNormBackwardCall: dx, dweight, dbias = f(x, dy, weight, stats) with ints rows, n, rms. Outputs may be absent.
func layerNormBackwardCall(r *recorder, c *core.Call) error {
	rows, n, rms := int(c.Ints[0]), int(c.Ints[1]), c.Ints[2] != 0
	if n == 0 {
		return nil
	}
	if c.Outs[0].Present() && rows > 0 {
		s := newShader(r, "layer_norm_backward")
		t := s.row(line{rows, n, 1})
		t.in("x", &c.Ins[0])
		t.in("g", &c.Ins[1])
		t.out("dx", &c.Outs[0])
		slope := "$g"
		if s.flag(c.Ins[2].Present()) {
			t.same("w", &c.Ins[2])
			slope = "$g * $w"
		}
		stats, rowsWord := s.in("stats", &c.Ins[3], expr.F32, expr.Number), s.uint(rows)
		s.flag(rms)
		head := t.open(r.device.adapter.Software)
		err := s.run(r, rows, func() string {
			mean := "ld_stats(" + stats + " + group)"
			if rms {
				mean = "0.0"
			}
			text := wholeSum(t.width) + head + "  let mean = " + mean + ";\n  let scale = ld_stats(" + stats + " + " + rowsWord + " + group);\n" +
				"  var a = 0.0;\n  var b = 0.0;\n" + t.pass("let d = "+slope+"; a = a + d; b = b + d * (($x - mean) * scale);")
			if rms {
				text += "  let first_moment = 0.0;\n"
			} else {
				text += "  let first_moment = whole_sum(lane, a) / f32(n);\n"
			}
			return text + "  let second_moment = whole_sum(lane, b) / f32(n);\n" +
				t.pass("let d = "+slope+"; $dx = scale * (d - first_moment - ($x - mean) * scale * second_moment);") + "}\n"
		})
		if err != nil {
			return err
		}
	}
	return columnSums(r, c, rows, n, rms)
}

// columnSums computes dweight and dbias of a layer norm: sums over the rows, in pieces first.
func columnSums(r *recorder, c *core.Call, rows, n int, rms bool) error {
	dw, db := &c.Outs[1], &c.Outs[2]
	if !dw.Present() && !db.Present() {
		return nil
	}
	x, g := &c.Ins[0], &c.Ins[1]
	four := n%4 == 0 && x.DType == core.Float32 && g.DType == core.Float32 && base(x)%4 == 0 && base(g)%4 == 0
	wide := 1 // columns of an invocation
	if four {
		wide = 4
	}
	pieces := min(max(busy*wide/n, 1), ceil(max(rows, 1), 16), 256)
	pieces = max(pieces, ceil(rows, longLoop))
	chunk := ceil(max(rows, 1), pieces)
	parts, err := r.temp(8 * n * pieces)
	if err != nil {
		return err
	}
	s := newShader(r, "layer_norm_backward (parts)")
	from, grad := s.in("x", x, expr.F32, expr.Number), s.in("g", g, expr.F32, expr.Number)
	s.flag(four)
	s.binds[0].four, s.binds[1].four = four, four
	stats := s.in("stats", &c.Ins[3], expr.F32, expr.Number)
	to := s.floatsOf("parts", parts)
	count, total, rowsWord, cols, chunkWord := s.uint(n/wide*pieces), s.uint(n*pieces), s.uint(rows), s.uint(n/wide), s.uint(chunk)
	s.flag(rms)
	unroll := s.flag(chunk >= 8)
	err = s.run(r, groupsFor(n/wide*pieces), func() string {
		typ := "f32"
		load := func(name, first string) string { return "ld_" + name + "(" + first + " + at)" }
		if four {
			typ = "vec4<f32>"
			load = func(name, first string) string { return name + "[(" + first + " >> 2u) + at]" }
		}
		mean := "ld_stats(" + stats + " + row)"
		if rms {
			mean = "0.0"
		}
		row := func(k int) string {
			return fmt.Sprintf("    let row = r + %du;\n    let at = row * %s + col;\n    x%[1]d = (%[3]s - %[4]s) * ld_stats(%[5]s + %[6]s + row);\n    g%[1]d = %[7]s;\n",
				k, cols, load("x", from), mean, stats, rowsWord, load("g", grad))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "  let col = i %% %[1]s;\n  let begin = (i / %[1]s) * %[2]s;\n  let end = min(begin + %[2]s, %[3]s);\n  var a = %[4]s();\n  var b = %[4]s();\n  var r = begin;\n",
			cols, chunkWord, rowsWord, typ)
		for _, rounds := range []int{4, 1} {
			if rounds > 1 && !unroll {
				continue
			}
			fmt.Fprintf(&b, "  for (; r + %du < end; r += %du) {\n", rounds-1, rounds)
			for k := range rounds {
				fmt.Fprintf(&b, "    var x%d: %s;\n    var g%d: %s;\n    {\n%s    }\n", k, typ, k, typ, row(k))
			}
			for k := range rounds {
				fmt.Fprintf(&b, "    a = a + g%d * x%d;\n    b = b + g%d;\n", k, k, k)
			}
			b.WriteString("  }\n")
		}
		for c := range wide {
			part := ""
			if four {
				part = "." + string("xyzw"[c])
			}
			fmt.Fprintf(&b, "  parts[%s + i * %du + %du] = a%s;\n  parts[%s + %s + i * %du + %du] = b%s;\n", to, wide, c, part, to, total, wide, c, part)
		}
		return each(count, b.String())
	})
	if err != nil {
		return err
	}
	for i, o := range []*core.Operand{dw, db} {
		if !o.Present() {
			continue
		}
		if err := sumParts(r, parts, i*n*pieces, pieces, n, o); err != nil {
			return err
		}
	}
	return nil
}

// sumParts writes the sums of pieces x n numbers over the pieces. skip is how many numbers come before them.
func sumParts(r *recorder, parts core.Memory, skip, pieces, n int, out *core.Operand) error {
	kept := layout{sizes: []int{n}, strides: [][]int{{0}, {1}}, count: n}
	return sumFloat.joinStates(r, "sum of parts", parts, skip, pieces, kept, []*core.Operand{out}, expr.F32, 0, pieces)
}
