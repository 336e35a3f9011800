package nn

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// orthogonalBlock is how many vectors are made orthogonal to one another at a time; against those before, a block is one
// matrix product.
const orthogonalBlock = 32

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
			q, err := orthonormal(min(rows, cols), max(rows, cols))
			if err != nil {
				out = core.ErrorTensor(err)
				return
			}
			if rows > cols {
				q = op.Transpose(q, 0, 1)
			}
			out = op.CopyInPlace(t, op.Mul(op.Reshape(q, t.Shape()...), core.Num(gain)))
		})
		return out
	})
}

// orthonormal returns n random orthonormal rows of length m, float64: normal random ones after Gram and Schmidt's
// procedure, done twice against rounding.
func orthonormal(n, m int) (*core.Tensor, error) {
	random := op.RandnWith([]int{n, m}, op.RandomOptions{DType: core.Float64})
	var done []*core.Tensor
	for at := 0; at < n; at += orthogonalBlock {
		count := min(orthogonalBlock, n-at)
		block := op.Narrow(random, 0, at, count)
		for range 2 {
			if at > 0 {
				before := op.Cat(done, 0)
				block = op.Sub(block, op.MatMul(op.MatMul(block, op.Transpose(before, 0, 1)), before))
			}
			v, err := core.Values[float64](block)
			if err != nil {
				return nil, err
			}
			gramSchmidt(v, count, m)
			block = core.FromSlice(v, count, m)
		}
		done = append(done, block)
	}
	q := op.Cat(done, 0)
	return q, q.Err()
}

// gramSchmidt makes n rows of length m orthonormal.
func gramSchmidt(v []float64, n, m int) {
	for i := range n {
		x := v[i*m : (i+1)*m]
		for k := range i {
			y := v[k*m : (k+1)*m]
			dot := 0.0
			for j := range x {
				dot += x[j] * y[j]
			}
			for j := range x {
				x[j] -= dot * y[j]
			}
		}
		square := 0.0
		for _, a := range x {
			square += a * a
		}
		scale := 1 / math.Sqrt(square)
		for j := range x {
			x[j] *= scale
		}
	}
}
