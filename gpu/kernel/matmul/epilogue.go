package matmul

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// results describes the output of a tiled product and how it is stored. Strings are expressions of the program.
type results struct {
	first    string               // index of the output's first element
	row, col string               // strides of rows and columns
	vec4     bool                 // rows are written four elements at a time
	finished bool                 // the epilogue is applied; otherwise the sums are written as they are
	staged   bool                 // rows go through workgroup memory, so that writes are coalesced
	finish   finisher             // the epilogue, if finished
	gaps     func(w *shader.Text) // declares the function gaps
}

// bindResults binds the output; or, if sums is not nil, the scratch memory for sums.
func (x *tiledText) bindResults(s *shader.Builder, p *Product, sums *core.Memory) {
	x.out = results{finished: sums == nil, gaps: func(*shader.Text) {}}
	if s.Flag(!x.out.finished) {
		x.out.first = s.RealsOf("c", *sums)
		x.out.vec4 = s.Flag(p.N%4 == 0)
		x.out.row, x.out.col = s.Uint(p.N), s.Uint(1)
	} else {
		x.out.first = s.InOut("c", p.Out, expr.F32)
		x.out.vec4 = s.Flag(p.CCol == 1 && p.N%4 == 0 && shader.Vec4(p.Out, append([]int{p.CRow}, p.Batch.Strides[0]...)...))
		x.out.row, x.out.col = s.Uint(p.CRow), s.Uint(p.CCol)
	}
	bound := &s.Bindings[len(s.Bindings)-1]
	bound.Vec4 = x.out.vec4
	if x.out.finished {
		x.out.finish = p.finisher(s)
	}
}

// stage decides whether rows go through workgroup memory. They do if they cannot be written four elements at a time and the memory of b's tile has room for
// them.
func (o *results) stage(s *shader.Builder, p *Product, t tile) {
	o.staged = s.Flag(!o.vec4 && (!o.finished || p.CCol == 1) && t.Rows/t.ThreadRows <= t.K)
	o.finish.early = o.finish.beta != "" && (o.vec4 || o.staged)
}

// functions declares the functions that the epilogue calls.
func (o *results) functions(w *shader.Text) {
	if o.finished {
		o.finish.function(w)
		o.gaps(w)
	}
}

// value returns the expression for the result of a sum at an index, in a column.
func (o *results) value(sum, at, col string) string {
	if o.finished {
		return "finish(" + sum + ", " + at + ", " + col + ")"
	}
	return sum
}

// store returns a statement that stores one result.
func (o *results) store(at, col, sum string) string {
	if o.finished {
		return "st_c(" + at + ", " + o.value(sum, at, col) + ")"
	}
	return "c[" + at + "] = " + sum
}

// epilogue writes the statements that store an invocation's results.
func (x *tiledText) epilogue() {
	if x.out.finished {
		x.Add("  let c0 = at_0;")
	} else { // the pieces of K are the outermost dimension
		x.Add("  let c0 = %s + (piece * %s + layer / %s) * %s * %s;", x.out.first, x.batchSize, x.pieces, x.m, x.n)
	}
	if x.lastWave != nil {
		x.Add("  if (late) {")
		x.storePiece(x.lastWave.place, x.out.finish.alpha)
		x.Add("  } else {")
	}
	if x.out.staged {
		x.storeRows()
	} else {
		if x.out.finish.early {
			x.addOldValues()
		}
		x.storeRegisters()
	}
	if x.lastWave != nil {
		x.Add("  }")
	}
}

// row opens a block that defines row, the row of accumulator i of row group g.
func (x *tiledText) row(g, i int) {
	x.Add("  {\n    let row = row0 + (%du + ty) * 4u + %du;", g*x.Rows/x.ThreadRows, i)
}

// at opens a block that defines col and at, the column and the index of the first of the four results of column group h.
func (x *tiledText) at(h int) {
	x.Add("      {\n        let col = col0 + (%du + tx) * 4u;\n        let at = c0 + row * %s + col * %s;", h*x.Cols/x.ThreadCols, x.out.row, x.out.col)
}

// addOldValues applies alpha and beta to all accumulators if the output can be read four elements at a time. All old values are read before the first result is
// written: compilers do not move a read of the output before a write to it, so every later read would be waited for.
func (x *tiledText) addOldValues() {
	for g := range x.ThreadRows / 4 {
		for i := range 4 {
			x.row(g, i)
			for h := range x.ThreadCols / 4 {
				x.at(h)
				sum := fmt.Sprintf("c_%d_%d_%d", g, i, h)
				x.Add("        %s = %s;\n      }", sum, x.out.finish.sum(sum, vec4At("c", "at")))
			}
			x.Add("  }")
		}
	}
}

// storeRegisters stores results from the accumulators.
func (x *tiledText) storeRegisters() {
	for g := range x.ThreadRows / 4 {
		for i := range 4 {
			x.row(g, i)
			x.Add("    if (row < %s) {", x.m)
			for h := range x.ThreadCols / 4 {
				x.at(h)
				x.Add("        let v = c_%d_%d_%d;", g, i, h)
				x.storeVec4()
				x.Add("      }")
			}
			x.Add("    }\n  }")
		}
	}
}

// storeVec4 stores the results of v, four sums in a row from column col on.
func (x *tiledText) storeVec4() {
	if x.out.vec4 {
		var list []string
		for q := range 4 {
			list = append(list, x.out.value("v."+shader.Component(q), fmt.Sprintf("at + %du", q), fmt.Sprintf("col + %du", q)))
		}
		value := "real4(" + strings.Join(list, ", ") + ")"
		if x.out.finished {
			x.Add("        if (col < %s) { st4_c(at >> 2u, %s); }", x.n, value)
		} else {
			x.Add("        if (col < %s) { c[at >> 2u] = %s; }", x.n, value)
		}
		return
	}
	for q := range 4 {
		at := fmt.Sprintf("at + %du * %s", q, x.out.col)
		x.Add("        if (col + %du < %s) { %s; }", q, x.n, x.out.store(at, fmt.Sprintf("col + %du", q), "v."+shader.Component(q)))
	}
}

// storePiece stores an invocation's sums, scaled, to scratch memory, in the tile of vec4 that begins at place. Storing them unscaled is 0.5
// % slower.
func (x *tiledText) storePiece(place, scale string) {
	for g := range x.ThreadRows / 4 {
		for i := range 4 {
			for h := range x.ThreadCols / 4 {
				x.Add("    parts[%s + ((%du + ty) * 4u + %du) * %du + %du + tx] = c_%d_%d_%d * %s;",
					place, g*x.Rows/x.ThreadRows, i, x.Cols/4, h*x.Cols/x.ThreadCols, g, i, h, scale)
			}
		}
	}
}

// storeRows stores the results through the workgroup memory of b's tile, one row for each row of invocations at a time, so that writes are
// coalesced. Old values are read beforehand, as in addOldValues.
func (x *tiledText) storeRows() {
	down := x.Rows / x.ThreadRows
	loads := down * x.Cols / x.Threads()
	at := func(g, i, l int) {
		x.Add("    let line = (li + %du) / %du;\n    let place = (li + %du) %% %du;", l*x.Threads(), x.Cols, l*x.Threads(), x.Cols)
		x.Add("    let row = row0 + (%du + line) * 4u + %du;\n    let col = col0 + place;\n    let at = c0 + row * %s + col;", g*down, i, x.out.row)
	}
	for g := range x.ThreadRows / 4 {
		for i := range 4 {
			for l := range loads {
				if x.out.finish.early {
					x.Add("  var old_%d_%d_%d: real;\n  {", g, i, l)
					at(g, i, l)
					x.Add("    old_%d_%d_%d = ld_c(at);\n  }", g, i, l)
				}
			}
		}
	}
	for g := range x.ThreadRows / 4 {
		for i := range 4 {
			x.Barrier()
			for h := range x.ThreadCols / 4 {
				x.Add("  sh_b[ty][%du + tx] = c_%d_%d_%d;", h*x.Cols/x.ThreadCols, g, i, h)
			}
			x.Barrier()
			for l := range loads {
				sum := "sh_b[line][place >> 2u][place & 3u]"
				if x.out.finish.early {
					sum = x.out.finish.sum(sum, fmt.Sprintf("old_%d_%d_%d", g, i, l))
				}
				x.Add("  {")
				at(g, i, l)
				x.Add("    if (row < %s && col < %s) { %s; }\n  }", x.m, x.n, x.out.store("at", "col", sum))
			}
		}
	}
}
