package recurrent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A step of few sequences is one dispatch: a workgroup computes the gates of some units for some sequences, from the product with
// the recurrent weights to what is stored. With two, one of which waits for the other, most of the time went into beginning them.

const (
	stepRows    = 16 // sequences of a workgroup
	stepUnits   = 8  // units of a workgroup
	stepDepth   = 32 // how much of the depth of a product is in workgroup memory at a time
	stepThreads = stepRows * stepUnits
	// fewUnits is how many units there may be: the tiles of a product of its own read the weights less often. Measured on an H200.
	fewUnits = 256
)

// few reports whether a step is one dispatch.
func (v *recurrence) few(r *shader.Recorder) bool {
	return v.n <= r.GPU.FewSequences && v.hidden <= fewUnits
}

// A stepText is the text of a step. Forward, rows [n, hidden] meet those weights of each gate; backward, the rows
// [n, gates * hidden] of a step's slopes meet the weights' transpose.
type stepText struct {
	strings.Builder
	backward                                bool
	gates, slices                           int    // slices of a row: one, or one for each gate
	per                                     int    // elements that are read at a time: 1 or 4
	rows                                    string // the operand that rows are read through
	first, wide, n, hidden, w, down, across string // WGSL: of rows, how many, and of the weights with their strides
}

// runStep runs a cell after the product of rows with the weights, of which get_s is, backward the sum over gates. through names the
// operand that rows are read through.
func (v *recurrence) runStep(r *shader.Recorder, c *cell, through string, rows *core.Operand, backward bool, functions, body string) error {
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
	return s.RunGrid(r, shader.Ceil(v.hidden, stepUnits), shader.Ceil(v.n, stepRows), 1, func() string { return t.program(functions, body) })
}

func (t *stepText) program(functions, body string) string {
	t.WriteString("var<private> sums: array<f32, 4>;\nfn get_s(i: u32, gate: u32) -> f32 { return ")
	if t.backward {
		t.WriteString("sums[0] + sums[1] + sums[2] + sums[3]; }\n")
	} else {
		t.WriteString("sums[gate]; }\n")
	}
	t.WriteString(functions)
	fmt.Fprintf(t, "var<workgroup> sh_h: array<array<vec4<f32>, %d>, %d>;\n", stepDepth/4+1, t.slices*stepRows)
	fmt.Fprintf(t, "var<workgroup> sh_w: array<array<vec4<f32>, %d>, %d>;\n", stepDepth/4+1, t.gates*stepUnits)
	fmt.Fprintf(t, "@compute @workgroup_size(%d)\nfn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {\n", stepThreads)
	fmt.Fprintf(t, "  let row0 = wg.y * %du;\n  let unit0 = wg.x * %du;\n  let tx = li %% %du;\n  let ty = li / %du;\n", stepRows, stepUnits, stepUnits, stepUnits)
	kind := map[int]string{1: "f32", 4: "vec4<f32>"}[t.per]
	for l := range t.loads(t.slices * stepRows) {
		fmt.Fprintf(t, "  var h%d: %s;\n", l, kind)
	}
	for l := range t.loads(t.gates * stepUnits) {
		fmt.Fprintf(t, "  var w%d: %s;\n", l, kind)
	}
	for g := range t.gates {
		fmt.Fprintf(t, "  var sum%d = vec4<f32>();\n", g)
	}
	t.load("0u", kind)
	fmt.Fprintf(t, "  for (var k0 = 0u; k0 < %s; k0 += %du) {\n    workgroupBarrier();\n", t.hidden, stepDepth)
	t.put()
	t.WriteString("    workgroupBarrier();\n")
	t.load(fmt.Sprintf("(k0 + %du)", stepDepth), kind) // while what is there is multiplied
	for k := range stepDepth / 4 {
		for g := range t.gates {
			slice := 0
			if t.backward {
				slice = g
			}
			fmt.Fprintf(t, "    sum%d = fma(sh_h[%du + ty][%d], sh_w[%du + tx][%d], sum%d);\n", g, slice*stepRows, k, g*stepUnits, k, g)
		}
	}
	t.WriteString("  }\n")
	for g := range t.gates {
		fmt.Fprintf(t, "  sums[%d] = (sum%d.x + sum%d.y) + (sum%d.z + sum%d.w);\n", g, g, g, g, g)
	}
	fmt.Fprintf(t, "  let row = row0 + ty;\n  let unit = unit0 + tx;\n  if (row < %s && unit < %s) {\n  let i = row * %s + unit;\n%s  }\n}\n", t.n, t.hidden, t.hidden, body)
	return t.String()
}

// loads returns how often an invocation reads of so many lines of a tile.
func (t *stepText) loads(lines int) int { return shader.Ceil(lines*stepDepth, stepThreads*t.per) }

// place returns WGSL for where load l of an invocation goes in a tile: the line, and how deep. Neighbours read neighbours, which
// backward are units of the weights.
func (t *stepText) place(l int, weights bool) string {
	e := fmt.Sprintf("(li + %du)", l*stepThreads)
	if weights && t.backward {
		per := stepUnits / t.per
		return fmt.Sprintf("let deep = %s / %du %% %du; let line = %s / %du * %du + %s %% %du * %du;", e, per, stepDepth, e, per*stepDepth, stepUnits, e, per, t.per)
	}
	return fmt.Sprintf("let deep = %s %% %du * %du; let line = %s / %du;", e, stepDepth/t.per, t.per, e, stepDepth/t.per)
}

// load reads the tiles at a depth, zeros beyond the ends.
func (t *stepText) load(at, kind string) {
	read := func(name, index string) string {
		if t.per == 4 {
			return name + "[(" + index + ") >> 2u]"
		}
		return "ld_" + name + "(" + index + ")"
	}
	for l := range t.loads(t.slices * stepRows) {
		index := fmt.Sprintf("%s + row * %s + line / %du * %s + k", t.first, t.wide, stepRows, t.hidden)
		fmt.Fprintf(t, "    h%d = %s();\n    { %s let k = %s + deep; let row = row0 + line %% %du; if (k < %s && row < %s) { h%d = %s; } }\n",
			l, kind, t.place(l, false), at, stepRows, t.hidden, t.n, l, read(t.rows, index))
	}
	for l := range t.loads(t.gates * stepUnits) {
		index := fmt.Sprintf("%s + (line / %du * %s + unit) * %s + k * %s", t.w, stepUnits, t.hidden, t.down, t.across)
		if t.backward {
			index = fmt.Sprintf("%s + (line / %du * %s + k) * %s + unit * %s", t.w, stepUnits, t.hidden, t.down, t.across)
		}
		fmt.Fprintf(t, "    w%d = %s();\n    { %s let k = %s + deep; let unit = unit0 + line %% %du; if (k < %s && unit < %s && line < %du) { w%d = %s; } }\n",
			l, kind, t.place(l, true), at, stepUnits, t.hidden, t.hidden, t.gates*stepUnits, l, read("w", index))
	}
}

// put writes what was read to the tiles.
func (t *stepText) put() {
	for l := range t.loads(t.slices * stepRows) {
		part := "[deep & 3u]"
		if t.per == 4 {
			part = ""
		}
		fmt.Fprintf(t, "    { %s sh_h[line][deep >> 2u]%s = h%d; }\n", t.place(l, false), part, l)
	}
	for l := range t.loads(t.gates * stepUnits) {
		fmt.Fprintf(t, "    { %s if (line < %du) {", t.place(l, true), t.gates*stepUnits)
		switch {
		case t.per == 1:
			fmt.Fprintf(t, " sh_w[line][deep >> 2u][deep & 3u] = w%d;", l)
		case !t.backward:
			fmt.Fprintf(t, " sh_w[line][deep >> 2u] = w%d;", l)
		default:
			for i := range 4 {
				fmt.Fprintf(t, " sh_w[line + %du][deep >> 2u][deep & 3u] = w%d.%c;", i, l, "xyzw"[i])
			}
		}
		t.WriteString(" } }\n")
	}
}
