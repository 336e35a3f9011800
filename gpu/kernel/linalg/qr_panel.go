package linalg

import (
	"fmt"

	"github.com/plait-ml/plait/gpu/shader"
)

// A qrText writes the program of a panel. Strings are expressions.
type qrText struct {
	*shader.Text
	qrPanel
}

// each writes statements for every element that an invocation has in its column: a is the element, row its row, and v the element of the
// column that is eliminated, without its head.
func (x *qrText) each(statements func(a, row, v string) string) {
	if x.vectors == 0 {
		x.Add("    for (var row = lane; row < height; row = row + %du) {", x.lanes)
		x.Add("      var v = 0.0;\n      if (row > step) { v = data[at + row * apart + step]; }")
		x.Put(statements("data[place + row * apart]", "row", "v"))
		x.Add("    }")
		return
	}
	for q := range x.vectors {
		x.Add("    {\n      let v = column[lane + %du];", q*x.lanes)
		for i := range 4 {
			x.Put(statements(x.register(4*q+i), x.row(q, i), "v."+shader.Component(i)))
		}
		x.Add("    }")
	}
}

// register returns the name of an element in registers.
func (x *qrText) register(i int) string { return fmt.Sprintf("a%d", i) }

// row returns the row of element i of vec4 q.
func (x *qrText) row(q, i int) string {
	return fmt.Sprintf("(4u * (lane + %du) + %du)", q*x.lanes, i)
}

// factorisePanel writes the panel's columns of R and V, and its Uᵀ.
//
// In each step, the products of the column that is eliminated with all others give its norm, the factors of the reflection for the columns
// on its right, and the elements of U for the vectors on its left.
func (q *qr) factorisePanel(r *shader.Recorder, p qrPanel) error {
	s := shader.New(r, "qr")
	s.Specialize(p.width)
	s.Specialize(p.lanes)
	s.Specialize(p.vectors)
	data, inner := s.RealsOf("data", q.data), s.RealsOf("inner", q.inner)
	batch, rows, cols, vectors := s.Uint(q.batch), s.Uint(q.m), s.Uint(q.n), s.Uint(q.cols)
	first, count, offset := s.Uint(p.first), s.Uint(p.count), s.Uint(p.at)
	return s.Run(r, q.batch, func(w *shader.Text) {
		x := &qrText{w, p}
		if p.vectors > 0 {
			w.Shared("column", shader.Real4, p.lanes*p.vectors)
		}
		w.Shared("sums", shader.Real, p.lanes, p.width)
		w.Shared("totals", shader.Real, p.width)
		w.Shared("heads", shader.Real, p.width)
		w.EachGroup(p.lanes*p.width, batch)
		w.Add(`  let first = %s;
  let count = %s;
  let height = %s - first;
  let apart = %s;
  let at = %s + (group * (height + first) + first) * apart + first;
  let vectors = at + %s;`, first, count, rows, cols, data, vectors)
		w.Add(`  let col = li %% %[1]du;
  let lane = li / %[1]du;
  let inner0 = %[2]s + %[3]s + group * %[4]du;`, p.width, inner, offset, p.width*p.width)
		for i := range 4 * p.vectors {
			w.Add("  var a%[1]d = 0.0;\n  if (%[2]s < height && col < count) { a%[1]d = data[at + %[2]s * apart + col]; }", i, x.row(i/4, i%4))
		}
		w.Add("  for (var step = 0u; step < count; step++) {")
		x.publish()
		w.BarrierAll()
		x.step()
		w.BarrierAll()
		w.Add("  }")
		for i := range 4 * p.vectors {
			w.Add("  if (%[1]s < height && col < count) { data[vectors + %[1]s * apart + col] = a%[2]d; }", x.row(i/4, i%4), i)
		}
	})
}

// publish passes what is below the head of the column that is eliminated, and all columns' elements of its row, through workgroup memory.
func (x *qrText) publish() {
	if x.vectors == 0 {
		x.Add(`    var place = at + col;
    if (col < step) { place = vectors + col; }
    if (lane == 0u && col < count) { heads[col] = data[place + step * apart]; }`)
		return
	}
	x.Add("    if (col == step) {")
	for q := range x.vectors {
		x.Add("      column[lane + %du] = real4(0.0, 0.0, 0.0, 0.0);", q*x.lanes)
		for i := range 4 {
			x.Add("      if (%s > step) { column[lane + %du].%s = a%d; }", x.row(q, i), q*x.lanes, shader.Component(i), 4*q+i)
		}
	}
	x.Add("    }\n    if ((step >> 2u) %% %du == lane) {", x.lanes)
	for i := range 4 * x.vectors {
		x.Add("      if (%s == step) { heads[col] = a%d; }", x.row(i/4, i%4), i)
	}
	x.Add("    }")
}

// step eliminates a column.
func (x *qrText) step() {
	x.Add("    var sum = 0.0;")
	guard := ""
	if x.vectors == 0 {
		guard = "if (col < count) { "
	}
	x.each(func(a, _, v string) string {
		if guard != "" {
			return fmt.Sprintf("      %ssum = sum + %s * %s; }", guard, a, v)
		}
		return fmt.Sprintf("      sum = sum + %s * %s;", a, v)
	})
	x.Add("    sums[lane][col] = sum;")
	x.Barrier()
	x.Add(`    if (lane == 0u) {
      for (var i = 1u; i < %du; i++) { sum = sum + sums[i][col]; }
      totals[col] = sum;
    }`, x.lanes)
	x.Barrier()
	x.Add(`    sum = totals[col];
    let tail = totals[step];
    let head = heads[step];
    let norm = sqrt(head * head + tail);
    let diagonal = select(select(norm, -norm, head > 0.0), head, tail == 0.0);
    let start = head - diagonal;
    let scale = select(sqrt(2.0 / (tail + start * start)), 0.0, tail == 0.0);
    let factor = (sum + start * heads[col]) * scale;
    if (col < step && lane == 0u) { inner[inner0 + step * %du + col] = factor; }`, x.width)
	if x.vectors == 0 {
		x.Add(`    if (col > step && col < count) {
      let change = factor * scale;`)
		x.each(func(a, row, v string) string {
			return fmt.Sprintf("      if (%[2]s >= step) { %[1]s = %[1]s - change * select(%[3]s, start, %[2]s == step); }", a, row, v)
		})
		x.Add("    }\n    if (col == step) {")
		x.each(func(_, row, v string) string {
			return fmt.Sprintf("      data[vectors + %[1]s * apart + step] = select(%[2]s, start, %[1]s == step) * scale;", row, v)
		})
		x.Add("      if (lane == 0u) { data[at + step * apart + step] = diagonal; }\n    }")
		return
	}
	x.Add("    if (col > step) {\n      let change = factor * scale;")
	x.each(func(a, row, v string) string {
		return fmt.Sprintf("      %[1]s = %[1]s - change * select(%[3]s, start, %[2]s == step);", a, row, v)
	})
	x.Add("    }\n    if (col == step) {")
	x.each(func(a, row, v string) string {
		return fmt.Sprintf(`      if (%[2]s < step) { data[at + %[2]s * apart + step] = %[1]s; }
      if (%[2]s == step) { data[at + %[2]s * apart + step] = diagonal; }
      %[1]s = select(%[3]s, start, %[2]s == step) * scale;`, a, row, v)
	})
	x.Add("    }")
}
