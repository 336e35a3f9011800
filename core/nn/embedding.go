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
	Options    EmbeddingOptions
}

// EmbeddingOptions are the options of [NewEmbedding] and [NewEmbeddingBag].
type EmbeddingOptions struct {
	// PaddingIdx, if not nil, names the row that starts as zeros and gets no gradient.
	PaddingIdx *int
	// MaxNorm, if positive, is the norm that rows with a larger one are scaled down to when they are looked up.
	MaxNorm float64
	// NormType is the order of that norm; 0 means 2.
	NormType float64
	// ScaleGradByFreq divides the gradient of each row by how often it was looked up.
	ScaleGradByFreq bool
}

// NewEmbedding returns a table of num rows of size dim, normally distributed.
func NewEmbedding(num, dim int, o EmbeddingOptions) *Embedding {
	e := &Embedding{Options: o}
	e.Weight, e.PaddingIdx = newTable(num, dim, o)
	return e
}

// newTable returns the rows of a table and the index of the one for padding, or -1.
func newTable(num, dim int, o EmbeddingOptions) (weight *core.Tensor, padding int) {
	weight = newParameter(normal(1), num, dim)
	if o.PaddingIdx == nil {
		return weight, -1
	}
	padding = *o.PaddingIdx
	if padding < 0 {
		padding += num
	}
	core.NoGrad(func() {
		core.Tidy(func() {
			row := op.FillInPlace(op.Narrow(weight, 0, padding, 1), core.Num(0))
			if err := row.Err(); err != nil {
				weight = core.ErrorTensor(err)
			}
		})
	})
	return weight, padding
}

// Forward maps indices of shape [...] to rows of shape [..., dim].
func (e *Embedding) Forward(index *core.Tensor) *core.Tensor {
	if err := limitRows(e.Weight, index, e.Options); err != nil {
		return core.ErrorTensor(err)
	}
	return op.Embedding(index, e.Weight, op.EmbeddingOptions{PaddingIdx: paddingOf(e.PaddingIdx), ScaleGradByFreq: e.Options.ScaleGradByFreq})
}

// limitRows scales the rows that are looked up down to the largest norm, if there is one.
func limitRows(weight, index *core.Tensor, o EmbeddingOptions) (err error) {
	if o.MaxNorm <= 0 {
		return nil
	}
	order := o.NormType
	if order == 0 {
		order = 2
	}
	core.NoGrad(func() { err = op.EmbeddingRenormInPlace(weight, index, o.MaxNorm, order).Err() })
	return err
}

func paddingOf(index int) *int {
	if index < 0 {
		return nil
	}
	return &index
}

// EmbeddingBag combines rows of a table by bags of indices.
type EmbeddingBag struct {
	Base
	Weight *core.Tensor // [num, dim]
	// PaddingIdx is the row that counts for nothing; -1 for none.
	PaddingIdx int
	// Mode is how rows are combined: "mean", "sum" or "max".
	Mode    string
	Options EmbeddingOptions
}

// NewEmbeddingBag returns a table of num rows of size dim, normally distributed. An empty mode is "mean".
func NewEmbeddingBag(num, dim int, mode string, o EmbeddingOptions) *EmbeddingBag {
	if mode == "" {
		mode = "mean"
	}
	e := &EmbeddingBag{Mode: mode, Options: o}
	e.Weight, e.PaddingIdx = newTable(num, dim, o)
	return e
}

// Forward maps a matrix of indices, a bag in each row, to the bags' rows [bags, dim].
func (e *EmbeddingBag) Forward(index *core.Tensor) *core.Tensor { return e.Bags(index, nil, nil) }

// Bags maps a vector of indices to the rows [bags, dim] of the bags that begin at the offsets. weights, of the indices' shape,
// scale the rows of a sum and may be nil.
func (e *EmbeddingBag) Bags(index, offsets, weights *core.Tensor) *core.Tensor {
	if err := limitRows(e.Weight, index, e.Options); err != nil {
		return core.ErrorTensor(err)
	}
	return op.EmbeddingBag(index, e.Weight, op.EmbeddingBagOptions{Offsets: offsets, PerSampleWeights: weights, Mode: e.Mode,
		PaddingIdx: paddingOf(e.PaddingIdx), ScaleGradByFreq: e.Options.ScaleGradByFreq})
}
