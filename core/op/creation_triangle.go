package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// TrilIndices returns the rows and the columns, in a tensor of shape [2, n], int64 by default, of the elements on and below a
// diagonal of a matrix, row by row.
func TrilIndices(rows, columns, offset int, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "tril_indices", rows, columns, offset, o)
	}
	return triangleIndices("tril_indices", rows, columns, offset, false, o)
}

// TriuIndices returns the rows and the columns, in a tensor of shape [2, n], int64 by default, of the elements on and above a
// diagonal of a matrix, row by row.
func TriuIndices(rows, columns, offset int, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "triu_indices", rows, columns, offset, o)
	}
	return triangleIndices("triu_indices", rows, columns, offset, true, o)
}

func triangleIndices(name string, rows, columns, offset int, upper bool, o TensorOptions) *core.Tensor {
	if o.dtype(core.Int64) == core.Int32 {
		o.DType = nil
		return compose(name, func() *core.Tensor { return castTo(triangleIndices(name, rows, columns, offset, upper, o), core.Int32) })
	}
	op := begin(name).like(nil, o)
	if rows < 0 || columns < 0 {
		op.failf(core.ValueError, "got a matrix of %d rows and %d columns, want none negative", rows, columns)
	}
	if d := o.dtype(core.Int64); d != core.Int64 {
		op.failf(core.DTypeError, "got dtype %v, want int64 or int32", d)
	}
	if op.err == nil {
		_, err := core.CheckShape(name, []int{rows, columns}, core.Int64)
		op.check(err)
	}
	if op.err != nil {
		return op.fail()
	}
	offset = min(max(offset, -rows), columns) // past the corners nothing changes
	n := belowDiagonal(rows, columns, offset)
	if upper {
		n = rows*columns - belowDiagonal(rows, columns, offset-1)
	}
	out := op.out(core.Int64, []int{2, n})
	if op.err == nil && n > 0 { // a matrix without columns may have any number of rows
		op.launch(contract.TriangleIndicesAttrs{Rows: rows, Columns: columns, Diagonal: offset, Upper: upper}.AddTo(op.call(contract.TriangleIndices).Out(out)))
	}
	return op.finish(out, o)
}

// belowDiagonal returns the number of elements on and below a diagonal, which lies from -rows-1 to columns.
func belowDiagonal(rows, columns, diagonal int) int {
	first := max(0, -diagonal)                           // the first row with an element
	full := min(max(columns-diagonal-1, first), rows)    // the first row with all of them
	shortest, longest := first+diagonal+1, full+diagonal // in the rows between
	n := 0
	if full > first {
		n = (shortest + longest) * (full - first) / 2
	}
	return n + max(rows-max(full, first), 0)*columns
}
