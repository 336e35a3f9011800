package copying

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// transposeSide is the side of the square tiles of a transposing copy.
const transposeSide = 64

// transposes returns the dimension along which the output is contiguous, and the one along which the input is. l is the loop over both. ok
// says that the dimensions differ and are long: the copy then goes through workgroup memory, so that both reads and writes are coalesced.
func transposes(l *shader.Loop, out, in *core.Operand) (across, down int, ok bool) {
	if !out.DType.IsFloat() || out.DType == core.Float64 || in.IsNumber || !in.DType.IsFloat() || in.DType == core.Float64 {
		return 0, 0, false
	}
	across, down = -1, -1
	for d := range l.Sizes {
		if l.Strides[0][d] == 1 {
			across = d
		}
		if l.Strides[1][d] == 1 {
			down = d
		}
	}
	ok = across >= 0 && down >= 0 && across != down && min(l.Sizes[across], l.Sizes[down]) >= 16
	return across, down, ok
}

// transpose copies by square tiles. l is the loop over the output and the input.
func transpose(r *shader.Recorder, l *shader.Loop, out, in *core.Operand, across, down int) error {
	s := shader.New(r, "transpose")
	x, y := s.In("x", in, expr.F32, expr.Number), s.Out("y", out, expr.F32, expr.Number)
	vec4 := s.Flag(transposesVec4(l, out, in, across, down))
	s.Bindings[0].Vec4, s.Bindings[1].Vec4 = vec4, vec4
	var outer shader.Loop
	outer.Strides, outer.Count = make([][]int, 2), 1
	for d, n := range l.Sizes {
		if d != across && d != down {
			outer.Push(n, l.Strides[0][d], l.Strides[1][d])
			outer.Count *= n
		}
	}
	wide, high := shader.Ceil(l.Sizes[across], transposeSide), shader.Ceil(l.Sizes[down], transposeSide)
	tilesWide, tilesHigh := s.Uint(wide), s.Uint(high)
	cols, rows := s.Uint(l.Sizes[across]), s.Uint(l.Sizes[down])
	step, toStep := s.Uint(l.Strides[1][across]), s.Uint(l.Strides[0][down])
	groups := wide * high * outer.Count
	count, rank := s.Uint(groups), s.Specialize(len(outer.Sizes))
	at := s.Loop(&outer)
	return s.Run(r, groups, func(w *shader.Text) {
		const n = transposeSide
		if vec4 {
			w.Shared("square", shader.Real4, n*n/4)
		} else {
			w.Shared("square", shader.Real, n*(n+1))
		}
		w.EachGroup(shader.Threads, count)
		w.Add(`  let square_row = group / %s;
  let col0 = group %% %s * %du;
  let row0 = square_row %% %s * %du;`, tilesWide, tilesWide, n, tilesHigh, n)
		w.Put(shader.WalkAs("at_", "square_row / "+tilesHigh, rank, 2, at, []string{y, x}))
		if vec4 {
			transposeVec4(w, step, toStep, cols, rows)
			return
		}
		w.Add(`  let near = li %% %du;
  let far = li / %du;`, n, n)
		for i := range n * n / shader.Threads { // reads past the edges are safe in WebGPU
			w.Add("  let v%d = ld_x(at_1 + (col0 + far + %du) * %s + row0 + near);", i, i*shader.Threads/n, step)
		}
		for i := range n * n / shader.Threads {
			w.Add("  square[(far + %du) * %du + near] = v%d;", i*shader.Threads/n, n+1, i)
		}
		w.Barrier()
		for i := range n * n / shader.Threads {
			w.Add("  if (row0 + far + %du < %s && col0 + near < %s) { st_y(at_0 + (row0 + far + %du) * %s + col0 + near, square[near * %du + far + %du]); }", i*shader.Threads/n, rows, cols, i*shader.Threads/n, toStep, n+1, i*shader.Threads/n)
		}
	})
}

// transposesVec4 reports whether both operands can be accessed as vec4.
func transposesVec4(l *shader.Loop, out, in *core.Operand, across, down int) bool {
	if !shader.Vec4(in) || !shader.Vec4(out) || l.Sizes[across]%4 != 0 || l.Sizes[down]%4 != 0 {
		return false
	}
	for d := range l.Sizes {
		if d != across && l.Strides[0][d]%4 != 0 || d != down && l.Strides[1][d]%4 != 0 {
			return false
		}
	}
	return true
}

// transposeVec4 transposes blocks of four by four in registers. In workgroup memory, the vec4 of a row are swizzled by the row, so that
// neither writes nor reads have bank conflicts.
func transposeVec4(w *shader.Text, step, toStep, cols, rows string) {
	const side = transposeSide / 4
	w.Add(`  let near = li %% %du;
  let far = li / %du;`, side, side)
	for i := range 4 {
		w.Add("  let v%d = ld4_x((at_1 + (col0 + far * 4u + %du) * %s + row0 + near * 4u) >> 2u);", i, i, step)
	}
	for c := range 4 {
		w.Add("  square[(near * 4u + %du) * %du + (far ^ near)] = real4(v0.%[3]s, v1.%[3]s, v2.%[3]s, v3.%[3]s);", c, side, shader.Component(c))
	}
	w.Barrier()
	w.Add("  if (col0 + near * 4u >= %s) { return; }", cols)
	for i := range 4 {
		w.Add(`  {
    let row = far + %du;
    if (row0 + row < %s) { st4_y((at_0 + (row0 + row) * %s + col0 + near * 4u) >> 2u, square[row * %du + (near ^ (row >> 2u))]); }
  }`, i*shader.Threads/side, rows, toStep, side)
	}
}

// Transposed returns a row-major copy of a column-major matrix in scratch memory, and the stride of its rows, a multiple of four elements.
func Transposed(r *shader.Recorder, o *core.Operand, rows, cols, colStep int) (*core.Operand, int, error) {
	apart, dtype := shader.Ceil(cols, 4)*4, r.RealType()
	if rows%4 == 0 && cols%4 == 0 && shader.Vec4(o, colStep) {
		dtype = o.DType
	}
	m, err := r.Temp(dtype.Size() * rows * apart)
	if err != nil {
		return nil, 0, err
	}
	out := &core.Operand{Memory: m, DType: dtype}
	l := shader.Loop{Sizes: []int{rows, cols}, Strides: [][]int{{apart, 1}, {1, colStep}}, Count: rows * cols}
	return out, apart, transpose(r, &l, out, o, 1, 0)
}
