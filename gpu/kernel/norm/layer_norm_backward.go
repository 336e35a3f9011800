package norm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// The gradients of layer norm's parameters are sums over rows. Workgroups compute partial sums, either in the same pass as dx, which reads
// the same operands, or in a pass of their own.

// rowRegisters returns the number of invocations that hold a row in registers, and how many vec4 of each operand an invocation holds; 0 if
// a row does not fit.
func (p *layerNormGradient) rowRegisters(software bool) (width, held int) {
	if !p.vec4(p.x, p.g, p.w, p.arrived, p.dx) {
		return 0, 0
	}
	return primitive.Holding(p.n, 2, software)
}

// divide returns how many rows a workgroup processes at once, if an invocation holds held vec4 of each, and the number of workgroups.
func (p *layerNormGradient) divide(gpu *shader.Device, held int) (rowsAtOnce, groups int) {
	rowsAtOnce = 1
	for rowsAtOnce < 4 && 2*rowsAtOnce*held <= gpu.NormVectors && p.rows*p.n >= 2*gpu.Multiprocessors*gpu.NormElements {
		rowsAtOnce *= 2
	}
	units := shader.Ceil(p.rows, rowsAtOnce)
	each := max(gpu.NormElements/(rowsAtOnce*max(p.n, 128)), 1) // most invocations have no element of shorter rows
	groups = min(units, gpu.Multiprocessors*each, max(shader.Ceil(p.rows, 4), gpu.Multiprocessors))
	return rowsAtOnce, max(groups, shader.Ceil(units, shader.MaxLoop))
}

// allGradients computes dx and the partial sums in one pass over x and dy. A workgroup processes several rows at a time; its invocations
// accumulate the sums of their columns in registers.
func (p *layerNormGradient) allGradients(r *shader.Recorder, width, held int) error {
	rowsAtOnce, groups := p.divide(r.GPU, held)
	parts, err := r.Reals(p.n * p.sumCount() * groups)
	if err != nil {
		return err
	}
	s := shader.New(r, "layer_norm_backward (all)")
	t := &registerRows{
		width: width, held: held, rowsAtOnce: rowsAtOnce, x: s.In("x", p.x, expr.F32, expr.Number), g: s.In("g", p.g, expr.F32, expr.Number),
		dx: s.Out("dx", p.dx, expr.F32, expr.Number), to: s.RealsOf("parts", parts), rms: s.Flag(p.rms),
	}
	if s.Flag(p.w != nil) {
		t.w = s.In("w", p.w, expr.F32, expr.Number)
	}
	if s.Flag(p.arrived != nil) {
		t.arrived = s.In("arrived", p.arrived, expr.F32, expr.Number)
	}
	if s.Flag(p.cast != nil) {
		t.cast = s.Out("copied", p.cast, expr.F32, expr.Number)
	}
	for i := range s.Bindings {
		s.Bindings[i].Vec4 = true
	}
	for i, o := range p.sums {
		if s.Flag(o != nil) {
			t.sums = append(t.sums, []string{"g_$k_$h * x_$k_$h", "g_$k_$h"}[i])
		}
	}
	t.stats = s.In("stats", p.stats, expr.F32, expr.Number)
	t.rows, t.n, t.units, t.groups, t.share = s.Uint(p.rows), s.Uint(p.n/4), s.Uint(shader.Ceil(p.rows, rowsAtOnce)), s.Uint(groups), s.Float(1/float64(p.n))
	s.Specialize(width / 64)
	s.Specialize(held)
	s.Specialize(rowsAtOnce)
	t.full, t.even = s.Flag(p.n == 4*width*held), s.Flag(p.rows%rowsAtOnce == 0)
	if err := s.Run(r, groups, t.write); err != nil {
		return err
	}
	return primitive.SumPartials(r, parts, groups, p.n, p.sums, nil)
}

// registerRows writes a program that computes dx and partial sums from rows in registers. Strings are expressions.
type registerRows struct {
	x, g, w, dx, cast, arrived, to       string   // indices of first elements
	stats, rows, n, units, groups, share string   // n is in vec4
	sums                                 []string // terms that a vec4 of a row adds to the sums
	width, held, rowsAtOnce              int      // invocations of a row, vec4 of each, and rows at a time
	full, even, rms                      bool     // full: every vec4 is in the row; even: the number of rows is a multiple of rowsAtOnce
}

// each repeats text for all vec4 $h of all rows $k of an iteration. $q is replaced by the index of the vec4 in the row.
func (t *registerRows) each(text string) string {
	var b strings.Builder
	for k := range t.rowsAtOnce {
		for h := range t.held {
			b.WriteString(t.four(k, h, text))
		}
	}
	return b.String()
}

func (t *registerRows) four(k, h int, text string) string {
	return strings.NewReplacer("$k", strconv.Itoa(k), "$h", strconv.Itoa(h), "$q", fmt.Sprintf("(lane + %du)", h*t.width)).Replace(text)
}

// inBounds returns the condition under which vec4 h of row k exists; "" if it always does. If k is negative, only h is checked.
func (t *registerRows) inBounds(k, h int) string {
	var conditions []string
	if k > 0 && !t.even {
		conditions = append(conditions, fmt.Sprintf("row_%d < %s", k, t.rows))
	}
	if !t.full {
		conditions = append(conditions, fmt.Sprintf("lane + %du < n", h*t.width))
	}
	return strings.Join(conditions, " && ")
}

// load returns a statement that loads a vec4 of an operand to a register, or zeros if it does not exist. It always loads, because loads
// behind a branch would wait for one another; the value of another vec4 is then discarded.
func (t *registerRows) load(name, first string, k, h int) string {
	place, row, register := "$q", "", name+"_$h"
	there := t.inBounds(k, h)
	if !t.full {
		place = "min($q, n - 1u)"
	}
	if k >= 0 {
		row, register = "known_$k * n + ", name+"_$k_$h"
	}
	value := fmt.Sprintf("ld4_%s((%s >> 2u) + %s%s)", name, first, row, place)
	if there != "" {
		value = "select(real4(), " + value + ", " + there + ")"
	}
	return t.four(k, h, fmt.Sprintf("  var %s = %s;\n", register, value))
}

// store returns text, executed only if the vec4 exists.
func (t *registerRows) store(k, h int, text string) string {
	if there := t.inBounds(k, h); there != "" {
		text = fmt.Sprintf(`  if (%s) {
%s  }
`, there, text)
	}
	return t.four(k, h, text)
}

// write writes the program.
func (t *registerRows) write(w *shader.Text) {
	moments, typ := []string{"a", "b"}, map[int]string{1: shader.Real, 2: shader.Real2, 4: shader.Real4, 8: shader.Real2x4}
	if t.rms {
		moments = moments[1:]
	}
	kind := typ[t.rowsAtOnce*len(moments)]
	w.Reduce("moments", kind, "a + b", t.width)
	w.EachGroup(t.width, t.groups)
	w.Add("  let lane = li;\n  let n = %s;", t.n)
	for h := range t.held {
		for i := range t.sums {
			w.Add("  var sum%d_%d = real4();", i, h)
		}
		if t.w != "" {
			w.Put(t.load("w", t.w, -1, h))
		}
	}
	w.Add("  for (var unit = group; unit < %s; unit += %s) {", t.units, t.groups)
	var sums []string
	for k := range t.rowsAtOnce {
		w.Add("  let row_%[1]d = unit * %[2]du + %[1]du;\n  let known_%[1]d = min(row_%[1]d, %[4]s - 1u);\n  let scale_%[1]d = ld_stats(%[3]s + %[4]s + known_%[1]d);",
			k, t.rowsAtOnce, t.stats, t.rows)
		if !t.rms {
			w.Add("  let mean_%[1]d = ld_stats(%[2]s + known_%[1]d);", k, t.stats)
		}
		for h := range t.held {
			w.Put(t.load("x", t.x, k, h) + t.load("g", t.g, k, h))
			if t.arrived != "" {
				w.Put(t.load("arrived", t.arrived, k, h))
			}
		}
	}
	for k := range t.rowsAtOnce {
		for _, m := range moments {
			w.Add("  var %s_%d = real4();", m, k)
			sums = append(sums, fmt.Sprintf("dot(%s_%d, real4(1.0))", m, k))
		}
	}
	centred, take, value := "x_$k_$h - mean_$k", "  a_$k = a_$k + g_$k_$h;\n", "g_$k_$h - mean_a_$k - x_$k_$h * mean_b_$k"
	if t.rms {
		centred, take, value = "x_$k_$h", "", "g_$k_$h - x_$k_$h * mean_b_$k"
	}
	term := fmt.Sprintf("  x_$k_$h = (%s) * scale_$k;\n", centred)
	for i, s := range t.sums {
		term += fmt.Sprintf("  sum%[1]d_$h = sum%[1]d_$h + %s;\n", i, s)
	}
	if t.w != "" {
		term += "  g_$k_$h = g_$k_$h * w_$h;\n"
	}
	w.Put(t.each(fmt.Sprintf("%s%s  b_$k = b_$k + g_$k_$h * x_$k_$h;\n", term, take)))
	w.Add("  let moments = whole_moments(lane, %s(%s)) * %s;", kind, strings.Join(sums, ", "), t.share)
	for i := range sums {
		part := ""
		if len(sums) > 4 {
			part = "[" + strconv.Itoa(i/4) + "]"
		}
		if len(sums) > 1 {
			part += "." + shader.Component(i%4)
		}
		w.Add("  let mean_%s_%d = moments%s;", moments[i%len(moments)], i/len(moments), part)
	}
	result := "scale_$k * (" + value + ")"
	if t.arrived != "" {
		result += " + arrived_$k_$h"
	}
	for k := range t.rowsAtOnce {
		for h := range t.held {
			text := fmt.Sprintf("  let dx_$k_$h = %s;\n  st4_dx((%s >> 2u) + row_$k * n + $q, dx_$k_$h);\n", result, t.dx)
			if t.cast != "" {
				text += fmt.Sprintf("  st4_copied((%s >> 2u) + row_$k * n + $q, dx_$k_$h);\n", t.cast)
			}
			w.Put(t.store(k, h, text))
		}
	}
	w.Add("  }")
	for i := range t.sums {
		for h := range t.held {
			w.Put(t.store(-1, h, fmt.Sprintf("  parts[(%s >> 2u) + (group * %du + %du) * n + $q] = sum%d_$h;\n", t.to, len(t.sums), i, i)))
		}
	}
}

// parameterGradients computes the parameter gradients alone.
func (p *layerNormGradient) parameterGradients(r *shader.Recorder) error {
	count := p.sumCount()
	if count == 0 {
		return nil
	}
	four := p.vec4(p.x, p.g)
	wide, typ := 1, shader.Real // columns of each invocation
	if four {
		wide, typ = 4, shader.Real4
	}
	pieces := min(max(shader.SaturatingInvocations*wide/p.n, 1), shader.Ceil(max(p.rows, 1), 16), 256)
	pieces = max(pieces, shader.Ceil(p.rows, shader.MaxLoop))
	chunk := shader.Ceil(max(p.rows, 1), pieces)
	parts, err := r.Reals(p.n * count * pieces)
	if err != nil {
		return err
	}
	s := shader.New(r, "layer_norm_backward (sums)")
	from, grad, to := s.In("x", p.x, expr.F32, expr.Number), s.In("g", p.g, expr.F32, expr.Number), s.RealsOf("parts", parts)
	s.Flag(four)
	for i := range s.Bindings {
		s.Bindings[i].Vec4 = four
	}
	stats := s.In("stats", p.stats, expr.F32, expr.Number)
	all, rows, cols, chunkWord := s.Uint(p.n/wide*pieces), s.Uint(p.rows), s.Uint(p.n/wide), s.Uint(chunk)
	s.Flag(p.rms)
	var terms []string
	for i, o := range p.sums {
		if s.Flag(o != nil) {
			terms = append(terms, []string{"g$k * x$k", "g$k"}[i])
		}
	}
	unroll := s.Flag(chunk >= 8)
	err = s.Run(r, shader.GroupsFor(p.n/wide*pieces), func(w *shader.Text) {
		w.Each(all)
		load := func(name, first string) string { return "ld_" + name + "(" + first + " + at)" }
		if four {
			load = func(name, first string) string { return "ld4_" + name + "((" + first + " >> 2u) + at)" }
			to = "(" + to + " >> 2u)"
		}
		mean := "ld_stats(" + stats + " + row)"
		if p.rms {
			mean = "0.0"
		}

		w.Add(`  let col = i %% %[1]s;
  let begin = (i / %[1]s) * %[2]s;
  let end = min(begin + %[2]s, %[3]s);
  var r = begin;`, cols, chunkWord, rows)
		for i := range terms {
			w.Add("  var sum%d = %s();", i, typ)
		}
		for _, several := range []int{4, 1} {
			if several > 1 && !unroll {
				continue
			}
			w.Add("  for (; r + %du < end; r += %du) {", several-1, several)
			for k := range several {
				w.Add(`    var x%[1]d: %[2]s;
    var g%[1]d: %[2]s;
    {
    let row = r + %[1]du;
    let at = row * %[3]s + col;
    x%[1]d = (%[4]s - %[5]s) * ld_stats(%[6]s + %[7]s + row);
    g%[1]d = %[8]s;
    }`, k, typ, cols, load("x", from), mean, stats, rows, load("g", grad))
			}
			for k := range several {
				for i, t := range terms {
					w.Add("    sum%[1]d = sum%[1]d + %[2]s;", i, strings.ReplaceAll(t, "$k", strconv.Itoa(k)))
				}
			}
			w.Add("  }")
		}
		for i := range terms {
			w.Add("  parts[%s + ((i / %s) * %du + %du) * %s + col] = sum%d;", to, cols, count, i, cols, i)
		}
	})
	if err != nil {
		return err
	}
	return primitive.SumPartials(r, parts, pieces, p.n, p.sums, nil)
}
