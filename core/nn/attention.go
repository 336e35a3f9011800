package nn

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// MultiheadAttention attends with several heads at once (Vaswani et al. 2017). Inputs are [batch, length, dim].
type MultiheadAttention struct {
	Base
	InProjWeight *core.Tensor // [3*dim, dim]: query, key and value
	InProjBias   *core.Tensor // [3*dim], or nil
	OutProj      *Linear
	Heads        int
	Dropout      float64
}

// AttentionOptions are the options of [NewMultiheadAttention].
type AttentionOptions struct {
	Dropout float64 // of the attention weights
	NoBias  bool
}

// NewMultiheadAttention returns a layer with heads heads, which must divide dim.
func NewMultiheadAttention(dim, heads int, o AttentionOptions) *MultiheadAttention {
	m := &MultiheadAttention{Heads: heads, Dropout: o.Dropout, OutProj: NewLinear(dim, dim, LinearOptions{NoBias: o.NoBias})}
	if heads < 1 || dim%heads != 0 {
		m.InProjWeight = core.ErrorTensor(core.Errorf(core.ValueError, "multihead_attention", "%d heads do not divide %d dimensions", heads, dim))
		return m
	}
	m.InProjWeight = newParameter(xavierUniform(dim, 3*dim), 3*dim, dim)
	if !o.NoBias {
		m.InProjBias = newParameter(fillWith(0), 3*dim)
		core.NoGrad(func() { op.FillInPlace(m.OutProj.Bias, core.Num(0)) })
	}
	return m
}

// Mask says which keys a query sees.
type Mask struct {
	// Causal hides the keys after the query.
	Causal bool
	// Attention is broadcast to [batch, heads, queries, keys]: a bool tensor keeps where true, another is added to the
	// scores.
	Attention *core.Tensor
	// Padding is a bool tensor [batch, keys], true for the keys that nobody sees.
	Padding *core.Tensor
}

// combined returns the mask of attention and padding in one, or nil.
func (m Mask) combined() *core.Tensor {
	if m.Padding == nil {
		return m.Attention
	}
	keep := op.LogicalNot(op.Reshape(m.Padding, m.Padding.Size(0), 1, 1, m.Padding.Size(1)))
	switch {
	case m.Attention == nil:
		return keep
	case m.Attention.DType() == core.Bool:
		return op.LogicalAnd(m.Attention, keep)
	}
	return op.Where(keep, m.Attention, op.FullLike(m.Attention, core.Num(negativeInfinity), op.TensorOptions{}))
}

// Attend returns the attention of query [n, l, dim] over key and value [n, s, dim].
func (m *MultiheadAttention) Attend(query, key, value *core.Tensor, mask Mask) *core.Tensor {
	var q, k, v *core.Tensor
	if query == key && key == value {
		parts := op.Chunk(op.Linear(query, m.InProjWeight, m.InProjBias), 3, -1)
		if len(parts) != 3 {
			return parts[0]
		}
		q, k, v = parts[0], parts[1], parts[2]
	} else {
		w := op.Chunk(m.InProjWeight, 3, 0)
		b := []*core.Tensor{nil, nil, nil}
		if m.InProjBias != nil {
			b = op.Chunk(m.InProjBias, 3, 0)
		}
		if len(w) != 3 || len(b) != 3 {
			return w[0]
		}
		q, k, v = op.Linear(query, w[0], b[0]), op.Linear(key, w[1], b[1]), op.Linear(value, w[2], b[2])
	}
	p := 0.0
	if m.Training() {
		p = m.Dropout
	}
	y := op.ScaledDotProductAttention(m.split(q), m.split(k), m.split(v), op.AttentionOptions{Mask: mask.combined(), Causal: mask.Causal, DropoutP: p})
	return m.OutProj.Forward(op.Flatten(op.Transpose(y, 1, 2), 2, 3))
}

// split maps [n, l, dim] to [n, heads, l, dim/heads].
func (m *MultiheadAttention) split(x *core.Tensor) *core.Tensor {
	if x.Err() != nil {
		return x
	}
	return op.Transpose(op.Unflatten(x, -1, m.Heads, -1), 1, 2)
}

// Forward is self-attention over x [n, l, dim] without a mask.
func (m *MultiheadAttention) Forward(x *core.Tensor) *core.Tensor { return m.Attend(x, x, x, Mask{}) }
