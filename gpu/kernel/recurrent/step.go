package recurrent

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// With few sequences, a step is a single dispatch: a workgroup computes some units of some sequences, from the product with the recurrent
// weights to the stored results. Two dependent dispatches would spend most of their time on launch latency.

const (
	stepRows    = 16 // sequences of a workgroup
	stepUnits   = 8  // units of a workgroup
	stepK       = 32 // elements of K in workgroup memory at a time
	stepThreads = stepRows * stepUnits
	// maxUnits is the number of hidden units up to which this is done. With more, a separate product is faster, because its larger tiles
	// read the weights less often. It was measured on an H200.
	maxUnits = 256
)

// singleDispatch reports whether a step is one dispatch.
func (v *recurrence) singleDispatch(r *shader.Recorder) bool {
	return v.n <= r.GPU.FewSequences && v.hidden <= maxUnits
}

// A stepText writes the program of a step. Forward, it multiplies rows [n, hidden] by the weights of each gate; backward, it multiplies
// rows [n, gates * hidden] of gate gradients by the transposed weights.
type stepText struct {
	*shader.Text
	backward                                  bool
	gates, slices                             int    // a row has one slice forward, and one for each gate backward
	vector                                    int    // elements of a load: 1 or 4
	rows                                      string // name of the operand that rows are read from
	first, stride, n, hidden, w, down, across string // expressions for the first row, the stride and number of rows, the hidden size, and the first weight with its strides
}

// runStep computes the product of rows and the weights, then runs the cell. get_s in the cell returns the product; backward, the sum over
// gates. through is the name of the operand that rows are read from.
func (v *recurrence) runStep(r *shader.Recorder, c *cell, through string, rows *core.Operand, backward bool, functions []func(w *shader.Text), body string) error {
	s := c.s
	s.Specialize(15) // a different key than the cell's alone
	t := stepText{backward: backward, gates: v.gates, slices: 1, vector: 1, rows: through, hidden: c.h}
	width := v.hidden
	if backward {
		t.slices, width = v.gates, v.gates*v.hidden
	}
	t.first = s.Uint(int(shader.Base(rows)))
	t.w = s.In("w", v.w, expr.F32, expr.Number)
	t.n, t.stride, t.down, t.across = s.Uint(v.n), s.Uint(width), s.Uint(v.w.Strides[0]), s.Uint(v.w.Strides[1])
	at := slices.IndexFunc(s.Bindings, func(b shader.Binding) bool { return b.Name == through })
	if s.Flag(v.hidden%4 == 0 && v.w.Strides[1] == 1 && s.Aligned(rows) && s.Aligned(v.w, v.w.Strides[0])) {
		t.vector = 4
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
	kind := map[int]string{1: shader.Real, 4: shader.Real4}[t.vector]
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
	t.store()
	t.Barrier()
	t.load(fmt.Sprintf("(k0 + %du)", stepK), kind) // loads the next tiles during the multiplication
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

// loads returns how many loads an invocation makes for a tile of a number of rows.
func (t *stepText) loads(lines int) int { return shader.Ceil(lines*stepK, stepThreads*t.vector) }

// position returns statements that define line, the row of the tile, and along, the position along K, of load l. Neighbouring invocations
// load neighbouring elements: backward, these are units of the weights.
func (t *stepText) position(l int, weights bool) string {
	e := fmt.Sprintf("(li + %du)", l*stepThreads)
	if weights && t.backward {
		per := stepUnits / t.vector
		return fmt.Sprintf("let along = %s / %du %% %du; let line = %s / %du * %du + %s %% %du * %du;", e, per, stepK, e, per*stepK, stepUnits, e, per, t.vector)
	}
	return fmt.Sprintf("let along = %s %% %du * %du; let line = %s / %du;", e, stepK/t.vector, t.vector, e, stepK/t.vector)
}

// load loads the tiles at a position of K, with zeros beyond the edges.
func (t *stepText) load(at, kind string) {
	read := func(name, index string) string {
		if t.vector == 4 {
			return name + "[(" + index + ") >> 2u]"
		}
		return "ld_" + name + "(" + index + ")"
	}
	for l := range t.loads(t.slices * stepRows) {
		index := fmt.Sprintf("%s + row * %s + line / %du * %s + k", t.first, t.stride, stepRows, t.hidden)
		t.Add("    h%d = %s();", l, kind)
		t.Add("    { %s let k = %s + along; let row = row0 + line %% %du; if (k < %s && row < %s) { h%d = %s; } }", t.position(l, false), at, stepRows, t.hidden, t.n, l, read(t.rows, index))
	}
	for l := range t.loads(t.gates * stepUnits) {
		index := fmt.Sprintf("%s + (line / %du * %s + unit) * %s + k * %s", t.w, stepUnits, t.hidden, t.down, t.across)
		if t.backward {
			index = fmt.Sprintf("%s + (line / %du * %s + k) * %s + unit * %s", t.w, stepUnits, t.hidden, t.down, t.across)
		}
		t.Add("    w%d = %s();", l, kind)
		t.Add("    { %s let k = %s + along; let unit = unit0 + line %% %du; if (k < %s && unit < %s && line < %du) { w%d = %s; } }", t.position(l, true), at, stepUnits, t.hidden, t.hidden, t.gates*stepUnits, l, read("w", index))
	}
}

// store writes the loaded tiles to workgroup memory.
func (t *stepText) store() {
	for l := range t.loads(t.slices * stepRows) {
		part := "[along & 3u]"
		if t.vector == 4 {
			part = ""
		}
		t.Add("    { %s sh_h[line][along >> 2u]%s = h%d; }", t.position(l, false), part, l)
	}
	for l := range t.loads(t.gates * stepUnits) {
		t.Add("    { %s if (line < %du) {", t.position(l, true), t.gates*stepUnits)
		switch {
		case t.vector == 1:
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
