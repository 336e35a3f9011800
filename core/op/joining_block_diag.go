package op

import "github.com/plait-ml/plait/core"

// BlockDiag returns the matrix with the given matrices along its diagonal and zeros elsewhere. Vectors count as rows and 0-d
// tensors as matrices of one element.
func BlockDiag(tensors []*core.Tensor) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "block_diag", tensors)
	}
	op := begin("block_diag").list(&tensors)
	if op.err == nil && len(tensors) == 0 {
		op.failf(core.ValueError, "got no tensors")
	}
	cols := 0
	for i, t := range tensors {
		if op.err == nil && (t.IsNumber() || t.Dim() > 2) {
			op.failf(core.ShapeError, "tensor %d is %v, want at most two dimensions", i, t)
		}
		if op.err == nil {
			cols += atLeastShape(t, 2)[1]
		}
	}
	return op.compose(func() *core.Tensor {
		rows := make([]*core.Tensor, len(tensors))
		left := 0
		for i, t := range tensors {
			block := Reshape(t, atLeastShape(t, 2)...)
			rows[i] = Pad(block, []int{left, cols - left - block.Size(1)}, PadOptions{})
			left += block.Size(1)
		}
		return Cat(rows, 0)
	})
}

// atLeastShape returns t's shape with dimensions of size 1 in front, up to n of them in all.
func atLeastShape(t *core.Tensor, n int) []int {
	shape := t.Shape()
	for len(shape) < n {
		shape = append([]int{1}, shape...)
	}
	return shape
}
