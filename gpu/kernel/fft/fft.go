// Package fft has the GPU kernel of Fourier transforms. Workgroups load lines into workgroup memory, in the order in which radix passes want
// them, and transform them there: see the CPU's kernel, which works alike. A line that is too long for that is a matrix, whose columns are
// transformed by one program and whose rows by another.
package fft

import (
	"fmt"
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.FFT, fftCall) }

// threads is the number of invocations of a workgroup.
const threads = 256

// A transform is a call.
type transform struct {
	contract.FFTAttrs
	x, y  *core.Operand
	lines shader.Loop // of both
}

func fftCall(r *shader.Recorder, c *core.Call) error {
	t := &transform{FFTAttrs: contract.FFTOf(c), x: &c.Ins[0], y: &c.Outs[0]}
	n := min(len(t.x.Shape), len(t.y.Shape))
	if t.Kind == contract.FFTComplex {
		n-- // the dimension of the parts
	}
	t.lines = shader.Loop{Count: 1, Strides: make([][]int, 2)}
	for d, size := range t.x.Shape[:n] {
		if d != t.Dim {
			t.lines.Count *= size
			t.lines.Push(size, t.x.Strides[d], t.y.Strides[d])
		}
	}
	if t.lines.Count == 0 {
		return nil
	}
	most := r.GPU.WorkgroupStorage / (2 * r.RealType().Size())
	if t.Length <= most {
		return t.run(r, whole, t.Length, 1, nil)
	}
	n1 := nearest(t.Length, most)
	if n1 == 0 {
		return core.Errorf(core.NotImplemented, c.Op, "a GPU transforms at most %d points that are a product of two factors of at most %d, got %d; use the CPU",
			most*most, most, t.Length)
	}
	middle, err := r.Reals(2 * t.lines.Count * t.Length)
	if err != nil {
		return err
	}
	if err := t.run(r, columns, n1, t.Length/n1, &middle); err != nil {
		return err
	}
	return t.run(r, rows, t.Length/n1, n1, &middle)
}

// nearest returns the factor of n that is nearest to its root, of which neither it nor the other is larger than most; 0 if there is none.
func nearest(n, most int) int {
	for a := int(math.Sqrt(float64(n))) + 1; a > 1; a-- {
		if n%a == 0 && n/a <= most && a <= most {
			return a
		}
	}
	return 0
}

// What a program makes of a line: all, or one of the two passes over its matrix.
const (
	whole = iota
	columns
	rows
)

// run transforms `count` lines of n points for each line of the call.
func (t *transform) run(r *shader.Recorder, part, n, count int, middle *core.Memory) error {
	s := shader.New(r, "fft")
	x, y := s.In("x", t.x, expr.F32, expr.Number), s.Out("y", t.y, expr.F32, expr.Number)
	s.Specialize(part)
	s.Specialize(n)
	s.Specialize(int(t.Kind))
	s.Flag(t.Inverse)
	// Short lines share a workgroup.
	each := max(1, threads/n)
	total, length, others := s.Uint(t.lines.Count*count), s.Uint(t.Length), s.Uint(count)
	from, to, scale := s.Uint(t.x.Strides[t.Dim]), s.Uint(t.y.Strides[t.Dim]), s.Float(t.Scale)
	rank := s.Specialize(len(t.lines.Sizes))
	at := s.Loop(&t.lines)
	between := ""
	if middle != nil {
		between = s.RealsOf("middle", *middle)
	}
	return s.Run(r, shader.Ceil(t.lines.Count*count, each), func(w *shader.Text) {
		e := text{w: w, n: n, each: each}
		radices := factors(n)
		w.Shared("points", shader.Real2, n*each)
		most := 1
		for _, f := range radices {
			most = max(most, f)
		}
		if most > 5 {
			w.Private("values", shader.Real2, most)
			w.Private("roots", shader.Real2, most)
		}
		w.Func("times(a: real2, b: real2) -> real2", "return real2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);")
		// The angle is reduced to an eighth of the circle in integers.
		w.Func("root(k: u32, n: u32) -> real2", `let quarter = (8u * k / n + 1u) / 2u;
  let angle = %.17f * (real(i32(4u * k) - i32(quarter * n)) / real(4u * n));
  let c = plait_cos_f32(angle);
  let s = plait_sin_f32(angle);
  if (quarter %% 4u == 0u) { return real2(c, -s); }
  if (quarter %% 4u == 1u) { return real2(-s, -c); }
  if (quarter %% 4u == 2u) { return real2(-c, s); }
  return real2(s, c);`, 2*math.Pi)
		w.Main(threads)
		line := "row"
		if part != whole {
			line = "(row / " + others + ")"
		}
		walk := shader.WalkAs("at_", line, rank, 2, at, []string{x, y})

		e.eachPoint(func() {
			w.Add("    var v = real2(0.0, 0.0);\n    if (row < %s) {", total)
			switch part {
			case rows:
				w.Add("      let at = %s + 2u * (row * %du + i);\n      v = real2(middle[at], middle[at + 1u]);", between, n)
			default:
				w.Put(walk)
				place := "i"
				if part == columns {
					place = "(i * " + others + " + row % " + others + ")"
				}
				w.Add("      let j = %s;", place)
				w.Put(t.load(from, length))
			}
			w.Add("    }")
			// The row in which the radix passes want element i.
			w.Add("    var rest = i;\n    var into = 0u;")
			below := n
			for p := len(radices) - 1; p >= 0; p-- {
				below /= radices[p]
				w.Add("    into = into + rest %% %du * %du;\n    rest = rest / %du;", radices[p], below, radices[p])
			}
			w.Add("    points[l * %du + into] = v;", n)
		})
		m := 1
		for _, f := range radices {
			w.Barrier()
			e.pass(f, m)
			m *= f
		}
		w.Barrier()
		e.eachPoint(func() {
			w.Add("    if (row < %s) {\n      var v = points[l * %du + i];", total, n)
			if part == columns {
				w.Add("      let k2 = row %% %s;\n      v = times(v, root(i * k2, %s));", others, length)
				w.Add("      let at = %s + 2u * ((row / %s * %du + i) * %s + k2);\n      middle[at] = v.x;\n      middle[at + 1u] = v.y;", between, others, n, others)
			} else {
				w.Put(walk)
				place := "i"
				if part == rows {
					place = "(i * " + others + " + row % " + others + ")"
				}
				w.Add("      let j = %s;", place)
				w.Put(t.store(to, length, scale))
			}
			w.Add("    }")
		})
	})
}

// swaps reports whether the transform is the inverse one, which is the other with the parts exchanged.
func (t *transform) swaps() bool {
	return t.Kind == contract.FFTHalfToReal || t.Kind == contract.FFTComplex && t.Inverse
}

// load returns statements that set v to element j of the line.
func (t *transform) load(step, length string) string {
	read := "real2(ld_x(place), ld_x(place + 1u))"
	at, rest := "j", ""
	switch t.Kind {
	case contract.FFTRealToHalf:
		read = "real2(ld_x(place), 0.0)"
	case contract.FFTHalfToReal:
		at = "h"
		rest = fmt.Sprintf("      if (h == 0u || 2u * h == %s) { v = real2(v.x, 0.0); }\n", length)
		if t.Inverse {
			rest = fmt.Sprintf("%s      if (j != h) { v = real2(v.x, -v.y); }\n", rest)
		} else {
			rest = fmt.Sprintf("%s      if (j == h) { v = real2(v.x, -v.y); }\n", rest)
		}
	}
	if t.swaps() {
		rest = fmt.Sprintf("%s      v = real2(v.y, v.x);\n", rest)
	}
	return fmt.Sprintf("      let h = min(j, %s - j);\n      let place = at_0 + %s * %s;\n      v = %s;\n%s", length, at, step, read, rest)
}

// store returns statements that write v to element j of the line.
func (t *transform) store(step, length, scale string) string {
	value := "v"
	if t.swaps() {
		value = "real2(v.y, v.x)"
	}
	sign := ""
	if t.Kind == contract.FFTRealToHalf && t.Inverse {
		sign = "-"
	}
	second := fmt.Sprintf("        st_y(place + 1u, %sw.y * %s);\n", sign, scale)
	condition := "true"
	switch t.Kind {
	case contract.FFTRealToHalf:
		condition = fmt.Sprintf("2u * j <= %s", length)
	case contract.FFTHalfToReal:
		second = ""
	}
	return fmt.Sprintf("      let place = at_1 + j * %s;\n      let w = %s;\n      if (%s) {\n        st_y(place, w.x * %s);\n%s      }", step, value, condition, scale, second)
}

// factors returns the radices of n.
func factors(n int) (list []int) {
	for _, r := range []int{4, 2, 3, 5} {
		for n%r == 0 {
			list, n = append(list, r), n/r
		}
	}
	for r := 7; n > 1; r += 2 {
		for n%r == 0 {
			list, n = append(list, r), n/r
		}
	}
	return list
}

// A text writes the transforms of `each` lines of n points in workgroup memory.
type text struct {
	w       *shader.Text
	n, each int
}

// eachPoint opens a loop over the points of all lines: i of line l, which is line `row` of all.
func (e text) eachPoint(body func()) {
	e.w.Add("  for (var item = li; item < %du; item += %du) {\n    let l = item / %du;\n    let i = item - l * %du;\n    let row = group * %du + l;", e.n*e.each, threads, e.n, e.n, e.each)
	body()
	e.w.Add("  }")
}

// pass writes a radix pass: transforms of r points that are m apart, in place.
func (e text) pass(r, m int) {
	w := e.w
	count := e.n / r
	w.Add("  for (var item = li; item < %du; item += %du) {\n    let l = item / %du;\n    let i = item - l * %du;\n    let k = i %% %du;", count*e.each, threads, count, count, m)
	w.Add("    let q = l * %du + i / %du * %du + k;", e.n, m, m*r)
	value := func(j int) string {
		if j == 0 {
			return "points[q]"
		}
		if m == 1 {
			return fmt.Sprintf("points[q + %du]", j*m)
		}
		return fmt.Sprintf("times(points[q + %du], root(k * %du, %du))", j*m, j, m*r)
	}
	put := func(j int, v string) { w.Add("    points[q + %du] = %s;", j*m, v) }
	names := []string{"a", "b", "c", "d", "e"}
	if r <= len(names) {
		for j := range r {
			w.Add("    let %s = %s;", names[j], value(j))
		}
	}
	switch r {
	case 2:
		put(0, "a + b")
		put(1, "a - b")
	case 3:
		w.Add("    let sum = b + c;\n    let f = %.17f * (b - c);\n    let mid = a - 0.5 * sum;", math.Sqrt(3)/2)
		put(0, "a + sum")
		put(1, "real2(mid.x + f.y, mid.y - f.x)")
		put(2, "real2(mid.x - f.y, mid.y + f.x)")
	case 4:
		w.Add("    let s0 = a + c;\n    let d0 = a - c;\n    let s1 = b + d;\n    let d1 = b - d;")
		put(0, "s0 + s1")
		put(1, "real2(d0.x + d1.y, d0.y - d1.x)")
		put(2, "s0 - s1")
		put(3, "real2(d0.x - d1.y, d0.y + d1.x)")
	case 5:
		c1, c2 := math.Cos(2*math.Pi/5), math.Cos(4*math.Pi/5)
		s1, s2 := math.Sin(2*math.Pi/5), math.Sin(4*math.Pi/5)
		w.Add("    let s0 = b + e;\n    let s1 = c + d;\n    let d0 = b - e;\n    let d1 = c - d;")
		w.Add("    let f = a + %.17f * s0 + %.17f * s1;\n    let g = a + %.17f * s0 + %.17f * s1;", c1, c2, c2, c1)
		w.Add("    let h = %.17f * d0 + %.17f * d1;\n    let o = %.17f * d0 - %.17f * d1;", s1, s2, s2, s1)
		put(0, "a + s0 + s1")
		put(1, "real2(f.x + h.y, f.y - h.x)")
		put(2, "real2(g.x + o.y, g.y - o.x)")
		put(3, "real2(g.x - o.y, g.y + o.x)")
		put(4, "real2(f.x - h.y, f.y + h.x)")
	default:
		w.Add("    for (var j = 0u; j < %du; j += 1u) {\n      roots[j] = root(j, %du);\n      values[j] = times(points[q + j * %du], root(j * k, %du));\n    }", r, r, m, m*r)
		w.Add("    for (var o = 0u; o < %du; o += 1u) {\n      var sum = values[0];\n      var at = o;", r)
		w.Add("      for (var j = 1u; j < %du; j += 1u) {\n        sum = sum + times(values[j], roots[at]);\n        at = at + o;\n        if (at >= %du) { at = at - %du; }\n      }", r, r, r)
		w.Add("      points[q + o * %du] = sum;\n    }", m)
	}
	w.Add("  }")
}
