package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// maxVectors is how many rows or columns a product has at most to be streamed.
	maxVectors = 4
	// minStreamed is the least number of elements of the large factor.
	minStreamed = 4096
	// streamUnroll is how many loads of the large factor an invocation has in flight.
	streamUnroll = 4
	// sumLanes is how many invocations sum the same outputs where the large factor is not contiguous along K.
	sumLanes = 8
	// minStreamK is the least K of a piece, and streamWaves how many workgroups a multiprocessor should get.
	minStreamK, streamWaves = 1024, 4
)

// A streamed product has few rows or few columns. Its time is that of reading one factor, the matrix, once; tiles would mostly be empty. The
// matrix has rows of length K; the rows of the other factor that it is multiplied with are the vectors.
type streamed struct {
	*Product
	columns         bool // the vectors are columns of b; otherwise they are rows of a
	matrix, vectors *core.Operand
	rows, count     int  // rows of the matrix, and the number of vectors
	row, col        int  // strides of the matrix
	vector, element int  // strides of the vectors
	alongK          bool // the matrix is contiguous along K; otherwise it is across
	vec4            bool // the matrix is read four elements at a time, and with vectors4 so are the vectors
	vectors4        bool
	lanes           int // invocations that share an output
	pieces          int // of K
}

// stream describes the product as a streamed one, and reports whether it is one.
func (p *Product) stream(gpu *shader.Device) (v streamed, ok bool) {
	v = streamed{Product: p, columns: p.N <= p.M, matrix: p.A, vectors: p.B, rows: p.M, count: p.N, row: p.ARow, col: p.ACol, vector: p.BCol, element: p.BRow}
	if !v.columns {
		v.matrix, v.vectors, v.rows, v.count, v.row, v.col, v.vector, v.element = p.B, p.A, p.N, p.M, p.BCol, p.BRow, p.ARow, p.ACol
	}
	if v.count > maxVectors || v.rows*p.K < minStreamed || p.A.DType == core.Float64 || p.Folded || p.Gather != nil || p.Gap != 0 || v.row != 1 && v.col != 1 {
		return v, false
	}
	p.gpu = gpu
	v.alongK = v.col == 1
	of, other := 2, 1
	if v.columns {
		of, other = 1, 2
	}
	steps := func(i, step int) []int { return append([]int{step}, p.Batch.Strides[i]...) }
	if v.alongK {
		v.vec4 = p.K%4 == 0 && shader.Vec4(v.matrix, steps(of, v.row)...)
		v.vectors4 = v.vec4 && v.element == 1 && shader.Vec4(v.vectors, steps(other, v.vector)...)
	} else {
		v.vec4 = v.rows%4 == 0 && shader.Vec4(v.matrix, steps(of, v.col)...)
	}
	v.split()
	return v, p.Batch.Count*v.pieces <= gpu.Workgroups && 4*p.M*p.N*p.Batch.Count*v.pieces <= gpu.Binding
}

// split chooses how many invocations share an output, and into how many pieces K is cut, so that there are enough workgroups.
func (v *streamed) split() {
	enough := streamWaves * v.gpu.Multiprocessors
	v.lanes = sumLanes
	if v.alongK {
		v.lanes = 32
		if v.groups()*v.Batch.Count < enough {
			v.lanes = shader.Threads
		}
	}
	least := minStreamK
	if !v.alongK {
		least /= 8
	}
	v.pieces = max(min(enough/max(v.groups()*v.Batch.Count, 1), v.K/least, maxPieces), v.minPieces(), 1)
}

// width returns how many elements of the matrix are read at a time.
func (v *streamed) width() int {
	if v.vec4 {
		return 4
	}
	return 1
}

// groupRows returns how many rows of the matrix a workgroup takes.
func (v *streamed) groupRows() int {
	if v.alongK {
		return shader.Threads / v.lanes
	}
	return shader.Threads / v.lanes * v.width()
}

func (v *streamed) groups() int { return shader.Ceil(v.rows, v.groupRows()) }

// run computes the product.
func (v *streamed) run(r *shader.Recorder) error {
	if v.pieces == 1 {
		return v.dispatch(r, nil)
	}
	parts, err := r.Temp(4 * v.M * v.N * v.Batch.Count * v.pieces)
	if err != nil {
		return err
	}
	if err := v.dispatch(r, &parts); err != nil {
		return err
	}
	return v.sumPieces(r, parts, v.pieces)
}

// A streamText writes the program of a streamed product. Strings are expressions.
type streamText struct {
	*streamed
	*shader.Text
	rowsWord, k, row, col, vector, element string
	kind                                   string // of what is read at a time
}

// dispatch dispatches the program. If parts is not nil, the sums of the pieces are stored there without the epilogue.
func (v *streamed) dispatch(r *shader.Recorder, parts *core.Memory) error {
	s := shader.New(r, "matmul (stream)")
	for _, flag := range []bool{v.columns, v.alongK, v.vec4, v.vectors4} {
		s.Flag(flag)
	}
	s.Specialize(v.count)
	s.Specialize(v.lanes)
	x := &streamText{streamed: v, kind: shader.Real}
	matrix, vectors := s.In("x", v.matrix, expr.F32, expr.Number), s.In("v", v.vectors, expr.F32, expr.Number)
	if v.vec4 {
		x.kind = shader.Real4
	}
	s.Bindings[0].Vec4, s.Bindings[1].Vec4 = v.vec4, v.vectors4
	var finish finisher
	start, first := "0u", ""
	if s.Flag(parts != nil) {
		first = s.RealsOf("c", *parts)
	} else {
		start = s.InOut("c", v.Out, expr.F32)
		finish = v.finisher(s)
	}
	x.rowsWord, x.k, x.row, x.col, x.vector, x.element = s.Uint(v.rows), s.Uint(v.K), s.Uint(v.row), s.Uint(v.col), s.Uint(v.vector), s.Uint(v.element)
	outRow, outVector := v.CRow, v.CCol
	if parts != nil {
		outRow, outVector = v.N, 1
	}
	if !v.columns {
		outRow, outVector = outVector, outRow
	}
	rowStep, vectorStep := s.Uint(outRow), s.Uint(outVector)
	pieces, chunk, batch, results := s.Uint(v.pieces), s.Uint(shader.Ceil(shader.Ceil(v.K, v.pieces), 4)*4), s.Uint(v.Batch.Count), s.Uint(v.M*v.N)
	rank := s.Specialize(len(v.Batch.Sizes))
	batchParams := s.Loop(&v.Batch)
	across, down := v.groups(), 1
	if most := r.GPU.Workgroups; across > most {
		down = shader.Ceil(across, most)
		across = shader.Ceil(across, down)
	}
	return s.RunGrid(r, across, down, v.Batch.Count*v.pieces, func(w *shader.Text) {
		x.Text = w
		if parts == nil {
			finish.function(w)
		}
		w.Shared("sums", x.kind, v.count, shader.Threads)
		w.Main(shader.Threads)
		bases := []string{start, matrix, vectors}
		names := [2]string{"at_1", "at_2"}
		if !v.columns {
			bases[1], bases[2] = vectors, matrix
			names = [2]string{"at_2", "at_1"}
		}
		w.Add("  let piece = wg.z %% %s;", pieces)
		w.Put(shader.WalkAs("at_", "wg.z / "+pieces, rank, 3, batchParams, bases))
		w.Add("  let end = min(piece * %s + %s, %s);", chunk, chunk, x.k)
		x.accumulate(names[0], names[1], "piece * "+chunk)
		x.join()
		x.results(func(row string, vector int, sum string) {
			w.Add("    let at%d = at_0 + (%s) * %s + %du * %s;", vector, row, rowStep, vector, vectorStep)
			if parts != nil {
				w.Add("    c[%s + (piece * %s + wg.z / %s) * %s + at%d] = %s;", first, batch, pieces, results, vector, sum)
				return
			}
			col := row
			if v.columns {
				col = fmt.Sprintf("%du", vector)
			}
			w.Add("    st_c(at%d, finish(%s, at%d, %s));", vector, sum, vector, col)
		})
	})
}

// accumulate defines row, lane and the sums of an invocation, and adds up its part of a piece. matrix and vectors are the positions of the
// first elements.
func (x *streamText) accumulate(matrix, vectors, begin string) {
	step := x.lanes
	if x.alongK {
		step *= x.width()
		x.Add("  let lane = li %% %du;\n  let row = group * %du + li / %du;", x.lanes, x.groupRows(), x.lanes)
		x.Add("  let x_0 = %s + min(row, %s - 1u) * %s;", matrix, x.rowsWord, x.row)
		x.Add("  var k = %s + lane * %du;", begin, x.width())
	} else {
		wide := shader.Threads / x.lanes
		x.Add("  let lane = li / %du;\n  let row = group * %du + li %% %du * %du;", wide, x.groupRows(), wide, x.width())
		x.Add("  let x_0 = %s + min(row, %s - %du) * %s;", matrix, x.rowsWord, x.width(), x.row)
		x.Add("  var k = %s + lane;", begin)
	}
	for i := range x.count {
		x.Add("  let v_%d = %s + %du * %s;\n  var s_%d = %s();", i, vectors, i, x.vector, i, x.kind)
	}
	x.Add("  for (; k + %du < end; k += %du) {", (streamUnroll-1)*step, streamUnroll*step)
	for i := range streamUnroll {
		x.Add("    let k_%d = k + %du;\n    let x_k%d = %s;", i, i*step, i, x.load(fmt.Sprintf("x_0 + k_%d * %s", i, x.col)))
	}
	for i := range streamUnroll {
		x.add(fmt.Sprintf("x_k%d", i), fmt.Sprintf("k_%d", i))
	}
	x.Add("  }\n  for (; k < end; k += %du) {\n    let x_k = %s;", step, x.load("x_0 + k * "+x.col))
	x.add("x_k", "k")
	x.Add("  }")
}

// load returns the expression for what is read of the matrix at a time.
func (x *streamText) load(at string) string {
	if x.vec4 {
		return vec4At("x", at)
	}
	return "ld_x(" + at + ")"
}

// add writes statements that add the products of what was read of the matrix, at position k of K, to the sums.
func (x *streamText) add(read, k string) {
	for i := range x.count {
		at := fmt.Sprintf("v_%d + %s * %s", i, k, x.element)
		value := "ld_v(" + at + ")"
		switch {
		case x.vectors4:
			value = vec4At("v", at)
		case x.vec4 && x.alongK:
			value = fmt.Sprintf("real4(%s, ld_v(%s + %s), ld_v(%s + 2u * %s), ld_v(%s + 3u * %s))", value, at, x.element, at, x.element, at, x.element)
		case x.vec4:
			value = "real4(" + value + ")"
		}
		x.Add("    s_%d = fma(%s, %s, s_%d);", i, read, value, i)
	}
}

// join adds up the sums of the invocations that share an output, in a fixed order, in workgroup memory.
func (x *streamText) join() {
	apart := 1
	if !x.alongK {
		apart = shader.Threads / x.lanes
	}
	for i := range x.count {
		x.Add("  sums[%d][li] = s_%d;", i, i)
	}
	for half := x.lanes / 2; half > 0; half /= 2 {
		x.Barrier()
		x.Add("  if (lane < %du) {", half)
		for i := range x.count {
			x.Add("    sums[%d][li] = sums[%d][li] + sums[%d][li + %du];", i, i, i, half*apart)
		}
		x.Add("  }")
	}
	x.Barrier()
}

// results writes statements for the outputs of an invocation, which store writes for one of them.
func (x *streamText) results(store func(row string, vector int, sum string)) {
	if x.alongK {
		x.Add("  if (lane == 0u && row < %s) {", x.rowsWord)
		for i := range x.count {
			sum := fmt.Sprintf("sums[%d][li]", i)
			if x.vec4 {
				x.Add("    let sum%d = %s;", i, sum)
				sum = fmt.Sprintf("(sum%d.x + sum%d.y) + (sum%d.z + sum%d.w)", i, i, i, i)
			}
			store("row", i, sum)
		}
		x.Add("  }")
		return
	}
	for q := range x.width() {
		x.Add("  if (lane == 0u && row + %du < %s) {", q, x.rowsWord)
		for i := range x.count {
			sum := fmt.Sprintf("sums[%d][li]", i)
			if x.vec4 {
				sum += "." + shader.Component(q)
			}
			store(fmt.Sprintf("row + %du", q), i, sum)
		}
		x.Add("  }")
	}
}
