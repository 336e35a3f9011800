package nn

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// MultiheadAttention attends with several heads at once (Vaswani et al. 2017). Inputs are [batch, length, dim], or
// [length, dim] for one sample.
type MultiheadAttention struct {
	Base
	InProjWeight *core.Tensor // [3*dim, dim]: query, key and value; nil if keys or values have dimensions of their own
	QProjWeight  *core.Tensor // [dim, dim], [dim, kdim] and [dim, vdim], if so
	KProjWeight  *core.Tensor
	VProjWeight  *core.Tensor
	InProjBias   *core.Tensor // [3*dim], or nil
	BiasK, BiasV *core.Tensor // [1, 1, dim], a key and a value that everybody sees; or nil
	OutProj      *Linear
	Heads        int
	Dropout      float64 // of the attention weights
	AddZeroAttn  bool    // everybody also sees a key and a value of zeros
}

// AttentionOptions are the options of [NewMultiheadAttention].
type AttentionOptions struct {
	Dropout     float64 // of the attention weights
	NoBias      bool
	KDim, VDim  int  // dimensions of keys and values; 0 means those of queries
	AddBiasKV   bool // learn a key and a value that everybody sees
	AddZeroAttn bool // let everybody see a key and a value of zeros
}

// NewMultiheadAttention returns a layer with heads heads, which must divide dim.
func NewMultiheadAttention(dim, heads int, o AttentionOptions) *MultiheadAttention {
	m := &MultiheadAttention{Heads: heads, Dropout: o.Dropout, AddZeroAttn: o.AddZeroAttn}
	if heads < 1 || dim < 1 || dim%heads != 0 {
		m.InProjWeight = core.ErrorTensor(core.Errorf(core.ValueError, "multihead_attention", "%d heads do not divide %d dimensions", heads, dim))
		m.OutProj = &Linear{Weight: m.InProjWeight}
		return m
	}
	if o.KDim == 0 && o.VDim == 0 {
		m.InProjWeight = newParameter(xavierUniform, 3*dim, dim)
	} else {
		orDim := func(d int) int {
			if d == 0 {
				return dim
			}
			return d
		}
		m.QProjWeight = newParameter(xavierUniform, dim, dim)
		m.KProjWeight = newParameter(xavierUniform, dim, orDim(o.KDim))
		m.VProjWeight = newParameter(xavierUniform, dim, orDim(o.VDim))
	}
	m.OutProj = NewLinear(dim, dim, LinearOptions{NoBias: o.NoBias})
	if !o.NoBias {
		m.InProjBias = newParameter(fillWith(0), 3*dim)
		InitZeros(m.OutProj.Bias)
	}
	if o.AddBiasKV {
		xavierNormal := func(t *core.Tensor) *core.Tensor { return InitXavierNormal(t, 1) }
		m.BiasK, m.BiasV = newParameter(xavierNormal, 1, 1, dim), newParameter(xavierNormal, 1, 1, dim)
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
	return op.Where(keep, m.Attention, op.FullLike(m.Attention, core.Num(math.Inf(-1)), op.TensorOptions{}))
}

// extended returns the mask for keys that were added behind the first `keys`, which everybody sees.
func (m Mask) extended(queries, keys, more int) Mask {
	if m.Causal {
		see := make([]bool, queries*keys)
		for i := range queries {
			for j := range min(i+1, keys) {
				see[i*keys+j] = true
			}
		}
		causal := core.FromSlice(see, queries, keys)
		switch {
		case m.Attention == nil:
			m.Attention = causal
		case m.Attention.DType() == core.Bool:
			m.Attention = op.LogicalAnd(m.Attention, causal)
		default:
			m.Attention = op.Where(causal, m.Attention, core.Num(math.Inf(-1)))
		}
	}
	whole := m.combined()
	if whole == nil {
		return Mask{}
	}
	shape := slices.Clone(whole.Shape())
	shape[len(shape)-1] = keys
	full := op.Expand(whole, shape...)
	shape[len(shape)-1] = more
	d, seen := whole.DType(), core.Num(0)
	if d == core.Bool {
		seen = core.BoolNum(true)
	}
	return Mask{Attention: op.Cat([]*core.Tensor{full, op.Full(shape, seen, op.TensorOptions{DType: &d, Device: whole.Device()})}, -1)}
}

// project returns queries, keys and values [n, length, dim].
func (m *MultiheadAttention) project(query, key, value *core.Tensor) (q, k, v *core.Tensor) {
	b := []*core.Tensor{nil, nil, nil}
	if m.InProjWeight != nil && query == key && key == value {
		parts := op.Chunk(op.Linear(query, m.InProjWeight, m.InProjBias), 3, -1)
		if len(parts) != 3 {
			return parts[0], parts[0], parts[0]
		}
		return parts[0], parts[1], parts[2]
	}
	if m.InProjBias != nil {
		if b = op.Chunk(m.InProjBias, 3, 0); len(b) != 3 {
			return b[0], b[0], b[0]
		}
	}
	w := []*core.Tensor{m.QProjWeight, m.KProjWeight, m.VProjWeight}
	if m.InProjWeight != nil {
		if w = op.Chunk(m.InProjWeight, 3, 0); len(w) != 3 {
			return w[0], w[0], w[0]
		}
	}
	return op.Linear(query, w[0], b[0]), op.Linear(key, w[1], b[1]), op.Linear(value, w[2], b[2])
}

// prepare returns queries, keys and values [n, heads, length, dim/heads] and the mask for them.
func (m *MultiheadAttention) prepare(query, key, value *core.Tensor, mask Mask) (q, k, v *core.Tensor, all Mask) {
	q, k, v = m.project(query, key, value)
	for _, t := range []*core.Tensor{q, k, v} {
		if t.Err() != nil {
			return t, t, t, mask
		}
	}
	queries, keys, more := q.Size(1), k.Size(1), 0
	if m.BiasK != nil {
		k = op.Cat([]*core.Tensor{k, op.Expand(m.BiasK, k.Size(0), 1, k.Size(2))}, 1)
		v = op.Cat([]*core.Tensor{v, op.Expand(m.BiasV, v.Size(0), 1, v.Size(2))}, 1)
		more++
	}
	if m.AddZeroAttn {
		k, v = op.Pad(k, []int{0, 0, 0, 1}, op.PadOptions{}), op.Pad(v, []int{0, 0, 0, 1}, op.PadOptions{})
		more++
	}
	if more > 0 {
		mask = mask.extended(queries, keys, more)
	}
	return m.split(q), m.split(k), m.split(v), mask
}

// split maps [n, l, dim] to [n, heads, l, dim/heads].
func (m *MultiheadAttention) split(x *core.Tensor) *core.Tensor {
	if x.Err() != nil {
		return x
	}
	return op.Transpose(op.Unflatten(x, -1, m.Heads, -1), 1, 2)
}

// join undoes split and applies the output's projection.
func (m *MultiheadAttention) join(y *core.Tensor) *core.Tensor {
	return Call(m.OutProj, op.Flatten(op.Transpose(y, 1, 2), 2, 3))
}

func (m *MultiheadAttention) dropout() float64 {
	if m.Training() {
		return m.Dropout
	}
	return 0
}

// ForwardQKV returns the attention of query [n, l, dim] over key [n, s, dim] and value [n, s, dim].
func (m *MultiheadAttention) ForwardQKV(query, key, value *core.Tensor, mask Mask) *core.Tensor {
	if query.Err() == nil && query.Dim() == 2 {
		q, k, v := alone(query, key, value)
		return op.Squeeze(m.ForwardQKV(q, k, v, mask), 0)
	}
	q, k, v, mask := m.prepare(query, key, value, mask)
	y := op.ScaledDotProductAttention(q, k, v, op.AttentionOptions{Mask: mask.combined(), Causal: mask.Causal, DropoutP: m.dropout()})
	return m.join(y)
}

// alone makes a batch of one sample of each tensor; tensors that are the same stay the same.
func alone(query, key, value *core.Tensor) (q, k, v *core.Tensor) {
	q = op.Unsqueeze(query, 0)
	if k = q; key != query {
		k = op.Unsqueeze(key, 0)
	}
	switch value {
	case query:
		v = q
	case key:
		v = k
	default:
		v = op.Unsqueeze(value, 0)
	}
	return q, k, v
}

// ForwardQKVWithWeights is [MultiheadAttention.ForwardQKV] that also returns the weights of the keys, [n, heads, l, s], at the price of
// storing them.
func (m *MultiheadAttention) ForwardQKVWithWeights(query, key, value *core.Tensor, mask Mask) (y, weights *core.Tensor) {
	if query.Err() == nil && query.Dim() == 2 {
		q, k, v := alone(query, key, value)
		y, weights = m.ForwardQKVWithWeights(q, k, v, mask)
		return op.Squeeze(y, 0), op.Squeeze(weights, 0)
	}
	q, k, v, mask := m.prepare(query, key, value, mask)
	if q.Err() != nil {
		return q, q
	}
	if mask.Causal {
		mask = mask.extended(q.Size(2), k.Size(2), 0)
	}
	scores := op.Mul(op.MatMul(q, op.Transpose(k, -2, -1)), core.Num(1/math.Sqrt(float64(q.Size(-1)))))
	if all := mask.combined(); all != nil {
		if all.DType() == core.Bool {
			scores = op.Where(all, scores, core.Num(math.Inf(-1)))
		} else {
			scores = op.Add(scores, all)
		}
	}
	weights = op.Softmax(scores, -1)
	return m.join(op.MatMul(op.Dropout(weights, m.Dropout, m.Training()), v)), weights
}

// Forward is self-attention over x [n, l, dim] without a mask.
func (m *MultiheadAttention) Forward(x *core.Tensor) *core.Tensor {
	return m.ForwardQKV(x, x, x, Mask{})
}
