package nn

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// InitOrthogonal makes the rows of t, seen as a matrix of its first dimension by all others, orthogonal and of length
// gain; or its columns, if there are fewer of them. All such matrices are as likely: Saxe, McClelland and Ganguli 2014,
// "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks".
func InitOrthogonal(t *core.Tensor, gain float64) *core.Tensor {
	if err := dims("init_orthogonal", t, 2, 1<<30); err != nil {
		return core.ErrorTensor(err)
	}
	if t.Numel() == 0 {
		return t
	}
	rows := t.Size(0)
	cols := t.Numel() / rows
	return overwrite(t, func() *core.Tensor {
		var out *core.Tensor
		core.Tidy(func() {
			d := core.Float32
			if t.DType() == core.Float64 {
				d = core.Float64
			}
			q, r := op.QR(op.RandnWith([]int{max(rows, cols), min(rows, cols)}, op.RandomOptions{DType: &d, Device: t.Device()}))
			q = op.Mul(q, op.Sign(op.Diagonal(r, 0, 0, 1))) // without which some matrices are more likely
			if rows < cols {
				q = op.Transpose(q, 0, 1)
			}
			out = op.CopyInPlace(t, op.Mul(op.Reshape(q, t.Shape()...), core.Num(gain)))
		})
		return out
	})
}
