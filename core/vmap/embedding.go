package vmap

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// embedding looks rows up. Those of a batched weight are found in the part that the indices are of.
func embedding(u *use) []*core.Tensor {
	o := argument[op.EmbeddingOptions](u, 2)
	if !u.batched[1] && !o.ScaleGradByFreq { // how often a row was used is counted in each part
		return u.call(u.whole)
	}
	if o.Sparse || u.tensors[1].Dim() != 2 {
		return nil
	}
	rows, weight, _ := u.rowsOfParts(nil)
	out := op.Embedding(rows, weight, op.EmbeddingOptions{ScaleGradByFreq: o.ScaleGradByFreq})
	if o.PaddingIdx != nil {
		pad := *o.PaddingIdx
		if pad < 0 {
			pad += u.tensors[1].Size(0)
		}
		at := u.whole[0]
		if !u.batched[0] {
			at = u.repeated(at)
		}
		out = op.Where(op.Unsqueeze(op.Eq(at, core.IntNum(int64(pad))), -1), out.Detach(), out)
	}
	return []*core.Tensor{u.with(out)}
}

// rowsOfParts returns the indices of the first tensor as those of rows of one matrix, with the rows of all parts of the second and, if there is
// padding, one more, which the indices of padding are changed to.
func (u *use) rowsOfParts(padding *int) (rows, matrix *core.Tensor, pad *int) {
	all := u.all()
	at, n := op.To(all[0], core.Int64), u.tensors[1].Size(0)
	matrix = op.Flatten(all[1], 0, 1)
	number := func(i int) *core.Tensor { return core.IntNum(int64(i)) }
	// An index out of range must not pick from the next part.
	known := op.LogicalAnd(op.Ge(at, number(0)), op.Lt(at, number(n)))
	rows = op.Where(known, op.Add(at, op.Mul(u.parted(all[1], u.tensors[0].Dim()), number(n))), number(n*u.size+1))
	if padding != nil {
		own, last := *padding, n*u.size
		if own < 0 {
			own += n
		}
		rows, pad = op.Where(op.Eq(at, number(own)), number(last), rows), &last
		matrix = op.Cat([]*core.Tensor{matrix, op.Narrow(matrix, 0, 0, 1)}, 0)
	}
	return rows, matrix, pad
}

// bags combines rows. The bags of all parts are those of one, with the rows of all parts where these differ.
func bags(u *use) []*core.Tensor {
	in, weight, o := u.tensors[0], u.tensors[1], argument[op.EmbeddingBagOptions](u, 2)
	if weight.Dim() != 2 || in.DType().IsFloat() || o.Sparse || in.Dim() != 2 && (in.Dim() != 1 || o.Offsets == nil || o.Offsets.Dim() != 1) || in.Dim() == 2 && o.Offsets != nil ||
		o.PerSampleWeights != nil && o.PerSampleWeights.Numel() != in.Numel() || o.IncludeLastOffset && o.Offsets != nil && o.Offsets.Numel() == 0 {
		return nil
	}
	if p := o.PaddingIdx; p != nil && (*p < -weight.Size(0) || *p >= weight.Size(0)) {
		return nil
	}
	all := u.all() // indices, matrix, offsets, weights of samples
	rows, matrix, padding := all[0], u.whole[1], o.PaddingIdx
	if u.batched[1] || o.ScaleGradByFreq {
		rows, matrix, padding = u.rowsOfParts(o.PaddingIdx)
	}
	n := in.Size(0)
	if starts := all[2]; starts != nil {
		length := core.IntNum(int64(n))
		starts = op.To(starts, core.Int64)
		if n > 0 { // an index in front of the first bag must not get to the last one of the part before
			first := op.Narrow(starts, 1, 0, min(1, starts.Size(1)))
			if first.Size(1) > 0 {
				place := op.Arange(nil, length, nil, op.TensorOptions{Device: starts.Device()})
				rows = op.Where(op.Ge(place, first), rows, core.IntNum(-1))
			}
		}
		n = starts.Size(1)
		starts = op.Clamp(starts, core.IntNum(0), length)
		all[2] = op.Flatten(op.Add(starts, op.Mul(u.parted(starts, 1), length)), 0, 1)
	}
	wanted := n
	if o.IncludeLastOffset && o.Offsets != nil { // what lies behind the end is a bag that nobody wants
		wanted--
	}
	o.PaddingIdx, o.Offsets, o.PerSampleWeights, o.IncludeLastOffset = padding, all[2], nil, false
	if w := all[3]; w != nil {
		o.PerSampleWeights = op.Reshape(w, -1)
	}
	made := op.Unflatten(op.EmbeddingBag(op.Flatten(rows, 0, 1), matrix, o), 0, u.size, n)
	return u.results([]*core.Tensor{op.Narrow(made, 1, 0, wanted)})
}
