package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// transposeSide is the size of the squares that a transposing copy moves through workgroup memory.
const transposeSide = 64

// transposes reports along which dimensions of the loop over an output and an input, in this order, neighbours in the output
// lie, and neighbours in the input. ok says that they differ and that both are long: then a copy goes through workgroup
// memory, so that reads and writes are of neighbours.
func transposes(l *layout, out, in *core.Operand) (across, down int, ok bool) {
	if out.DType != core.Float32 || !in.DType.IsFloat() || in.DType == core.Float64 || in.IsNumber {
		return 0, 0, false
	}
	across, down = -1, -1
	for d := range l.sizes {
		if l.strides[0][d] == 1 {
			across = d
		}
		if l.strides[1][d] == 1 {
			down = d
		}
	}
	ok = across >= 0 && down >= 0 && across != down && min(l.sizes[across], l.sizes[down]) >= 16
	return across, down, ok
}

// transpose copies by squares. l is the loop over the output and the input.
func transpose(r *recorder, l *layout, out, in *core.Operand, across, down int) error {
	s := newShader(r, "transpose")
	x, y := s.in("x", in, expr.F32, expr.Number), s.out("y", out, expr.F32, expr.Number)
	four := s.flag(transposesFours(l, out, in, across, down))
	s.binds[0].four, s.binds[1].four = four, four
	var outer layout
	outer.strides, outer.count = make([][]int, 2), 1
	for d, n := range l.sizes {
		if d != across && d != down {
			outer.push(n, l.strides[0][d], l.strides[1][d])
			outer.count *= n
		}
	}
	wide, high := ceil(l.sizes[across], transposeSide), ceil(l.sizes[down], transposeSide)
	tilesWide, tilesHigh := s.uint(wide), s.uint(high)
	cols, rows := s.uint(l.sizes[across]), s.uint(l.sizes[down])
	step, toStep := s.uint(l.strides[1][across]), s.uint(l.strides[0][down])
	groups := wide * high * outer.count
	count, rank := s.uint(groups), s.choose(len(outer.sizes))
	at := s.loop(&outer)
	return s.run(r, groups, func() string {
		const n = transposeSide
		var w strings.Builder
		if four {
			fmt.Fprintf(&w, "var<workgroup> square: array<vec4<f32>, %d>;\n", n*n/4)
		} else {
			fmt.Fprintf(&w, "var<workgroup> square: array<f32, %d>;\n", n*(n+1))
		}
		fmt.Fprintf(&w, entry, threads)
		fmt.Fprintf(&w, "  if (group >= %s) { return; }\n", count)
		fmt.Fprintf(&w, "  let square_row = group / %s;\n  let col0 = group %% %s * %du;\n  let row0 = square_row %% %s * %du;\n",
			tilesWide, tilesWide, n, tilesHigh, n)
		w.WriteString(walkAs("at_", "square_row / "+tilesHigh, rank, 2, at, []string{y, x}))
		if four {
			transposeFours(&w, step, toStep, cols, rows)
			return w.String()
		}
		fmt.Fprintf(&w, "  let near = li %% %du;\n  let far = li / %du;\n", n, n)
		for i := range n * n / threads { // reads past the edges are harmless
			fmt.Fprintf(&w, "  let v%d = ld_x(at_1 + (col0 + far + %du) * %s + row0 + near);\n", i, i*threads/n, step)
		}
		for i := range n * n / threads {
			fmt.Fprintf(&w, "  square[(far + %du) * %du + near] = v%d;\n", i*threads/n, n+1, i)
		}
		w.WriteString("  workgroupBarrier();\n")
		for i := range n * n / threads {
			fmt.Fprintf(&w, "  if (row0 + far + %du < %s && col0 + near < %s) { st_y(at_0 + (row0 + far + %du) * %s + col0 + near, square[near * %du + far + %du]); }\n",
				i*threads/n, rows, cols, i*threads/n, toStep, n+1, i*threads/n)
		}
		w.WriteString("}\n")
		return w.String()
	})
}

// transposesFours reports whether both sides can be accessed by fours.
func transposesFours(l *layout, out, in *core.Operand, across, down int) bool {
	if in.DType != core.Float32 || base(in)%4 != 0 || base(out)%4 != 0 || l.sizes[across]%4 != 0 || l.sizes[down]%4 != 0 {
		return false
	}
	for d := range l.sizes {
		if d != across && l.strides[0][d]%4 != 0 || d != down && l.strides[1][d]%4 != 0 {
			return false
		}
	}
	return true
}

// transposeFours turns squares of four by four in registers. In workgroup memory rows of the output have their fours in an order
// that depends on the row, so that writing and reading it meets no bank twice.
func transposeFours(w *strings.Builder, step, toStep, cols, rows string) {
	const side = transposeSide / 4
	fmt.Fprintf(w, "  let near = li %% %du;\n  let far = li / %du;\n", side, side)
	for i := range 4 {
		fmt.Fprintf(w, "  let v%d = x[(at_1 + (col0 + far * 4u + %du) * %s + row0 + near * 4u) >> 2u];\n", i, i, step)
	}
	for c := range 4 {
		fmt.Fprintf(w, "  square[(near * 4u + %du) * %du + (far ^ near)] = vec4<f32>(v0.%[3]c, v1.%[3]c, v2.%[3]c, v3.%[3]c);\n", c, side, "xyzw"[c])
	}
	fmt.Fprintf(w, "  workgroupBarrier();\n  if (col0 + near * 4u >= %s) { return; }\n", cols)
	for i := range 4 {
		fmt.Fprintf(w, "  {\n    let row = far + %du;\n    if (row0 + row < %s) { y[(at_0 + (row0 + row) * %s + col0 + near * 4u) >> 2u] = square[row * %du + (near ^ (row >> 2u))]; }\n  }\n",
			i*threads/side, rows, toStep, side)
	}
	w.WriteString("}\n")
}

// turned returns a copy of a matrix, stored column by column, whose rows lie in memory one after the other, each from a multiple
// of four elements on, and how far apart they are.
func turned(r *recorder, o *core.Operand, rows, cols, colStep int) (*core.Operand, int, error) {
	apart := ceil(cols, 4) * 4
	m, err := r.temp(4 * rows * apart)
	if err != nil {
		return nil, 0, err
	}
	out := &core.Operand{Memory: m, DType: core.Float32}
	l := layout{sizes: []int{rows, cols}, strides: [][]int{{apart, 1}, {1, colStep}}, count: rows * cols}
	return out, apart, transpose(r, &l, out, o, 1, 0)
}
