package linalg

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// A block is a part of each matrix of a batch, from which a product reads or to which it writes: an operand, the index of its first
// element, the strides of its rows and columns, and that of the batch.
type block struct {
	of                    *core.Operand
	first, row, col, each int
}

// blockOf returns matrices in scratch memory, whose rows begin apart elements after each other.
func (x *matrices) blockOf(m core.Memory, rows, apart int) block {
	of := shader.F32Operand(m, 0, 1)
	of.DType = x.dtype
	return block{of: of, row: apart, col: 1, each: rows * apart}
}

// blockIn returns the matrices of a contiguous operand.
func blockIn(o *core.Operand) block {
	rows, cols := o.Shape[len(o.Shape)-2], o.Shape[len(o.Shape)-1]
	return block{of: o, row: cols, col: 1, each: rows * cols}
}

// at returns the block that begins at a row and a column of b.
func (b block) at(row, col int) block {
	b.first += row*b.row + col*b.col
	return b
}

func (b block) transposed() block {
	b.row, b.col = b.col, b.row
	return b
}

// operand returns the operand that begins at the block's first element.
func (b block) operand() *core.Operand {
	o := *b.of
	o.Offset += b.first
	return &o
}

// whole returns the matrices as a block.
func (x *matrices) whole() block { return x.blockOf(x.data, x.m, x.n) }

// product computes out = alpha a b + beta out for matrices [m, k] and [k, n].
func (x *matrices) product(r *shader.Recorder, out, a, b block, m, n, k int, alpha, beta float64) error {
	if m <= 0 || n <= 0 || k <= 0 {
		return nil
	}
	p := matmul.Product{M: m, N: n, K: k, Out: out.operand(), A: a.operand(), B: b.operand(), Alpha: alpha, Beta: beta,
		ARow: a.row, ACol: a.col, BRow: b.row, BCol: b.col, CRow: out.row, CCol: out.col}
	p.Batch = shader.Loop{Count: x.batch, Strides: make([][]int, 3)}
	p.Batch.Push(x.batch, out.each, a.each, b.each)
	return p.Run(r)
}

// copyTo copies blocks [rows, cols]. value is an expression of the element v at row and col.
func (x *matrices) copyTo(r *shader.Recorder, to, from block, rows, cols int, value string) error {
	n := x.batch * rows * cols
	if n == 0 {
		return nil
	}
	s := shader.New(r, "copy "+value)
	y, at := s.Out("y", to.operand(), expr.F32, expr.Number), s.In("x", from.operand(), expr.F32, expr.Number)
	count, height, width := s.Uint(n), s.Uint(rows), s.Uint(cols)
	place := func(base string, b block) string {
		return base + " + matrix * " + s.Uint(b.each) + " + row * " + s.Uint(b.row) + " + col * " + s.Uint(b.col)
	}
	y, at = place(y, to), place(at, from)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let col = i %% %s;
  let row = (i / %s) %% %s;
  let matrix = i / (%s * %s);`, width, width, height, width, height)
		w.Add("  let v = ld_x(%s);\n  st_y(%s, %s);", at, y, value)
	})
}
