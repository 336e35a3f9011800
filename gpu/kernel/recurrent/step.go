package recurrent

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A step of few sequences is one dispatch: a workgroup computes some units of some sequences, from the product with the recurrent weights
// to the stored results. With two dependent dispatches, most of the time went into starting them.

const (
	stepRows    = 16 // sequences of a workgroup
	stepUnits   = 8  // units of a workgroup
	stepK       = 32 // how many elements of K are in workgroup memory at a time
	stepThreads = stepRows * stepUnits
	// fewUnits is how many units there may be: the tiles of a product of its own read the weights less often. Measured on an H200.
	fewUnits = 256
)

// few reports whether a step is one dispatch.
func (v *recurrence) few(r *shader.Recorder) bool {
	return v.n <= r.GPU.FewSequences && v.hidden <= fewUnits
}

// A stepText is the text of a step's program. Forward, it multiplies rows [n, hidden] with the weights of each gate; backward, it
// multiplies rows [n, gates * hidden] of gate gradients with the transposed weights.
type stepText struct {
	*shader.Text
	backward                                bool
	gates, slices                           int    // slices of a row: one, or one for each gate
	per                                     int    // elements that are read at a time: 1 or 4
	rows                                    string // the operand that rows are read through
	first, wide, n, hidden, w, down, across string // expressions: of rows, how many, and of the weights with their strides
}

// runStep runs a cell after the product of rows with the weights, of which get_s is, backward the sum over gates. through names the
// operand that rows are read through.
func (v *recurrence) runStep(r *shader.Recorder, c *cell, through string, rows *core.Operand, backward bool, functions []func(w *shader.Text), body string) error {
	s := c.s
	s.Specialize(15) // not the program of the cell alone
	t := stepText{backward: backward, gates: v.gates, slices: 1, per: 1, rows: through, hidden: c.h}
	width := v.hidden
	if backward {
		t.slices, width = v.gates, v.gates*v.hidden
	}
	t.first = s.Uint(int(shader.Base(rows)))
	t.w = s.In("w", v.w, expr.F32, expr.Number)
	t.n, t.wide, t.down, t.across = s.Uint(v.n), s.Uint(width), s.Uint(v.w.Strides[0]), s.Uint(v.w.Strides[1])
	at := slices.IndexFunc(s.Bindings, func(b shader.Binding) bool { return b.Name == through })
	if s.Flag(v.hidden%4 == 0 && v.w.Strides[1] == 1 && shader.Aligned(rows) && shader.Aligned(v.w, v.w.Strides[0])) {
		t.per = 4
		s.Bindings[at].Vec4, s.Bindings[len(s.Bindings)-1].Vec4 = true, true
	}
	return s.RunGrid(r, shader.Ceil(v.hidden, stepUnits), shader.Ceil(v.n, stepRows), 1, func(w *shader.Text) {
		t.Text = w
		t.write(functions, body)
	})
}

func (t *stepText) write(functions []func(w *shader.Text), body string) {
	t.Private("sums", shader.Real, 4)
	sum := "sums[gate]"
	if t.backward {
		sum = "sums[0] + sums[1] + sums[2] + sums[3]"
	}
	t.Func("get_s(i: u32, gate: u32) -> real", "return %s;", sum)
	for _, f := range functions {
		f(t.Text)
	}
	t.Shared("sh_h", shader.Real4, t.slices*stepRows, stepK/4+1)
	t.Shared("sh_w", shader.Real4, t.gates*stepUnits, stepK/4+1)
	t.Main(stepThreads)
	t.Add(`  let row0 = wg.y * %du;
  let unit0 = wg.x * %du;
  let tx = li %% %du;
  let ty = li / %du;`, stepRows, stepUnits, stepUnits, stepUnits)
	kind := map[int]string{1: shader.Real, 4: shader.Real4}[t.per]
	for l := range t.loads(t.slices * stepRows) {
		t.Add("  var h%d: %s;", l, kind)
	}
	for l := range t.loads(t.gates * stepUnits) {
		t.Add("  var w%d: %s;", l, kind)
	}
	for g := range t.gates {
		t.Add("  var sum%d = real4();", g)
	}
	t.load("0u", kind)
	t.Add("  for (var k0 = 0u; k0 < %s; k0 += %du) {", t.hidden, stepK)
	t.Barrier()
	t.put()
	t.Barrier()
	t.load(fmt.Sprintf("(k0 + %du)", stepK), kind) // while what is there is multiplied
	for k := range stepK / 4 {
		for g := range t.gates {
			slice := 0
			if t.backward {
				slice = g
			}
			t.Add("    sum%d = fma(sh_h[%du + ty][%d], sh_w[%du + tx][%d], sum%d);", g, slice*stepRows, k, g*stepUnits, k, g)
		}
	}
	t.Add("  }")
	for g := range t.gates {
		t.Add("  sums[%d] = (sum%d.x + sum%d.y) + (sum%d.z + sum%d.w);", g, g, g, g, g)
	}
	t.Add(`  let row = row0 + ty;
  let unit = unit0 + tx;
  if (row < %s && unit < %s) {
  let i = row * %s + unit;
%s  }`, t.n, t.hidden, t.hidden, body)
}

// loads returns how often an invocation reads of so many lines of a tile.
func (t *stepText) loads(lines int) int { return shader.Ceil(lines*stepK, stepThreads*t.per) }

// place returns an expression for where load l of an invocation goes in a tile: the line, and how far along K. Neighbours read neighbours, which
// backward are units of the weights.
func (t *stepText) place(l int, weights bool) string {
	e := fmt.Sprintf("(li + %du)", l*stepThreads)
	if weights && t.backward {
		per := stepUnits / t.per
		return fmt.Sprintf("let along = %s / %du %% %du; let line = %s / %du * %du + %s %% %du * %du;", e, per, stepK, e, per*stepK, stepUnits, e, per, t.per)
	}
	return fmt.Sprintf("let along = %s %% %du * %du; let line = %s / %du;", e, stepK/t.per, t.per, e, stepK/t.per)
}

// load reads the tiles at a position of K, zeros beyond the ends.
func (t *stepText) load(at, kind string) {
	read := func(name, index string) string {
		if t.per == 4 {
			return name + "[(" + index + ") >> 2u]"
		}
		return "ld_" + name + "(" + index + ")"
	}
	for l := range t.loads(t.slices * stepRows) {
		index := fmt.Sprintf("%s + row * %s + line / %du * %s + k", t.first, t.wide, stepRows, t.hidden)
		t.Add("    h%d = %s();", l, kind)
		t.Add("    { %s let k = %s + along; let row = row0 + line %% %du; if (k < %s && row < %s) { h%d = %s; } }", t.place(l, false), at, stepRows, t.hidden, t.n, l, read(t.rows, index))
	}
	for l := range t.loads(t.gates * stepUnits) {
		index := fmt.Sprintf("%s + (line / %du * %s + unit) * %s + k * %s", t.w, stepUnits, t.hidden, t.down, t.across)
		if t.backward {
			index = fmt.Sprintf("%s + (line / %du * %s + k) * %s + unit * %s", t.w, stepUnits, t.hidden, t.down, t.across)
		}
		t.Add("    w%d = %s();", l, kind)
		t.Add("    { %s let k = %s + along; let unit = unit0 + line %% %du; if (k < %s && unit < %s && line < %du) { w%d = %s; } }", t.place(l, true), at, stepUnits, t.hidden, t.hidden, t.gates*stepUnits, l, read("w", index))
	}
}

// put writes what was read to the tiles.
func (t *stepText) put() {
	for l := range t.loads(t.slices * stepRows) {
		part := "[along & 3u]"
		if t.per == 4 {
			part = ""
		}
		t.Add("    { %s sh_h[line][along >> 2u]%s = h%d; }", t.place(l, false), part, l)
	}
	for l := range t.loads(t.gates * stepUnits) {
		t.Add("    { %s if (line < %du) {", t.place(l, true), t.gates*stepUnits)
		switch {
		case t.per == 1:
			t.Add(" sh_w[line][along >> 2u][along & 3u] = w%d;", l)
		case !t.backward:
			t.Add(" sh_w[line][along >> 2u] = w%d;", l)
		default:
			for i := range 4 {
				t.Add(" sh_w[line + %du][along >> 2u][along & 3u] = w%d.%s;", i, l, shader.Component(i))
			}
		}
		t.Add(" } }")
	}
}
