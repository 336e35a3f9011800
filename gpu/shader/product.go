package shader

import "github.com/plait-ml/plait/core"

// A Product is a batch of matrix products, as the library of a GPU's vendor computes them: out = alpha a b + beta out + bias. Factors are
// both float32, float16, bfloat16 or float64. The output has their dtype, or is float32.
type Product struct {
	M, N, K, Count int           // sizes of the matrices, at least 1, and of the batch
	Out, A, B      Matrix        // Out is not stored by columns
	Bias           *core.Operand // N contiguous elements of the output's dtype, which are added to each row; nil for none
	Alpha, Beta    float64       // the output is not read if Beta is 0
	Reduced        bool          // float32 factors may be rounded to TF32, and partial sums of 16-bit products to 16 bits
}

// A Matrix is an operand of a [Product], a batch of matrices. The elements of a row are contiguous, or with Columns those of a column.
type Matrix struct {
	*core.Operand
	Columns bool
	Step    int // elements between two rows, or columns
	Next    int // elements between two matrices of the batch; 0 for a factor that the batch shares
}

// MatrixOf describes a matrix of an operand by its strides, and reports whether a [Product] can express it.
func MatrixOf(o *core.Operand, rows, cols, row, col, next int) (m Matrix, ok bool) {
	m = Matrix{Operand: o, Step: max(row, cols), Next: next}
	if (col == 1 || cols == 1) && (row >= cols || rows == 1) {
		return m, true
	}
	m.Columns, m.Step = true, max(col, rows)
	return m, (row == 1 || rows == 1) && (col >= rows || cols == 1)
}

// Transposed returns the transposes of the matrices.
func (m Matrix) Transposed() Matrix {
	m.Columns = !m.Columns
	return m
}
