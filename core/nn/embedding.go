package nn

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Embedding looks rows of a table up.
type Embedding struct {
	Base
	Weight *core.Tensor // [num, dim]
	// PaddingIdx is the row that gets no gradient; -1 for none.
	PaddingIdx int
}

// EmbeddingOptions are the options of [NewEmbedding].
type EmbeddingOptions struct {
	// PaddingIdx, if not nil, names the row that starts as zeros and gets no gradient.
	PaddingIdx *int
}

// NewEmbedding returns a table of num rows of size dim, normally distributed.
func NewEmbedding(num, dim int, o EmbeddingOptions) *Embedding {
	e := &Embedding{Weight: newParameter(normal(1), num, dim), PaddingIdx: -1}
	if p := o.PaddingIdx; p != nil {
		e.PaddingIdx = *p
		if e.PaddingIdx < 0 {
			e.PaddingIdx += num
		}
		core.NoGrad(func() {
			core.Tidy(func() {
				row := op.FillInPlace(op.Narrow(e.Weight, 0, e.PaddingIdx, 1), core.Num(0))
				if err := row.Err(); err != nil {
					e.Weight = core.ErrorTensor(err)
				}
			})
		})
	}
	return e
}

// Forward maps indices of shape [...] to rows of shape [..., dim].
func (e *Embedding) Forward(index *core.Tensor) *core.Tensor {
	return op.Embedding(index, e.Weight, op.EmbeddingOptions{PaddingIdx: e.padding()})
}

func (e *Embedding) padding() *int {
	if e.PaddingIdx < 0 {
		return nil
	}
	return &e.PaddingIdx
}
