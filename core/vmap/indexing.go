package vmap

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// indexingRules are those of operations whose indices are tensors.
func indexingRules(add func(r rule, names string)) {
	add(index, "index")
	add(indexPut, "index_put index_put_")
	add(along(1), "gather scatter scatter_add scatter_reduce")
	add(composed(indexSelect), "index_select")
	add(composed(indexWrite), "index_add index_copy index_fill index_reduce")
	add(composed(takeAlong), "take_along_dim")
	add(composed(func(u *use) *core.Tensor {
		x, at := u.tensors[0], u.tensors[1]
		n := x.Numel()
		flat := op.Where(op.Lt(at, core.IntNum(0)), op.Add(at, core.IntNum(int64(n))), at)
		return op.Reshape(op.Gather(op.Reshape(x, -1), 0, op.Reshape(flat, -1)), at.Shape()...)
	}), "take")
	add(embedding, "embedding")
	add(bags, "embedding_bag")
	add(composed(func(u *use) *core.Tensor {
		x, at, src := u.tensors[0], u.tensors[1], u.tensors[2]
		if src.IsNumber() || src.Numel() != at.Numel() || src.DType() != x.DType() || isMask(at) {
			return nil
		}
		flat := op.IndexPut(op.Reshape(x, -1), []*core.Tensor{op.Reshape(at, -1)}, op.Reshape(src, -1), argument[bool](u, 3))
		return op.Reshape(flat, x.Shape()...)
	}), "put")
	add(composed(func(u *use) *core.Tensor {
		x, mask, src := u.tensors[0], u.tensors[1], u.tensors[2]
		if mask.DType() != core.Bool || src.IsNumber() || src.Numel() == 0 || src.DType() != x.DType() {
			return nil
		}
		shape, err := common(u.Op, []*core.Tensor{x, mask})
		if err != nil {
			return core.ErrorTensor(err)
		}
		// The n-th element where the mask is true gets the n-th of the source.
		count := op.CumSum(op.To(op.Reshape(op.Expand(mask, shape...), -1), core.Int64), 0)
		at := op.Clamp(op.Sub(count, core.IntNum(1)), core.IntNum(0), nil)
		return op.Where(mask, op.Reshape(op.Gather(op.Reshape(src, -1), 0, at), shape...), x)
	}), "masked_scatter")
	add(func(u *use) []*core.Tensor {
		if argument[int](u, 1) <= 0 {
			return []*core.Tensor{core.ErrorTensor(core.Errorf(core.NotImplemented, u.Op, "not possible inside vmap: the shape of its result depends on values, say how many classes there are"))}
		}
		return u.call(u.whole)
	}, "one_hot")
	add(written, "select_scatter slice_scatter diagonal_scatter")
	add(func(u *use) []*core.Tensor {
		if u.given(1) && u.batched[1] {
			return []*core.Tensor{core.ErrorTensor(core.Errorf(core.NotImplemented, u.Op, "not possible inside vmap: the shape of its result depends on values"))}
		}
		x := u.whole[0]
		at := 1
		if d, _ := u.Args[2].(*int); d != nil && u.tensors[0].Dim() > 0 {
			v, err := u.shifted(*d, u.tensors[0].Dim())
			if err != nil {
				return []*core.Tensor{core.ErrorTensor(err)}
			}
			at = v
		} else {
			x = op.Reshape(x, u.size, -1)
		}
		return u.results(u.Call([]any{x, u.Args[1], &at}))
	}, "repeat_interleave")
}

// isMask reports whether an index tensor says for each element whether it is wanted.
func isMask(t *core.Tensor) bool { return t.DType() == core.Bool || t.DType() == core.Uint8 }

// parted returns numbers that say of which part something is, to be broadcast with n dimensions of it.
func (u *use) parted(of *core.Tensor, n int) *core.Tensor {
	list := op.Arange(nil, core.IntNum(int64(u.size)), nil, op.TensorOptions{Device: of.Device()})
	return op.View(list, append([]int{u.size}, slices.Repeat([]int{1}, n)...)...)
}

// An indexed is the use of index tensors on the tensor behind a batched one.
type indexed struct {
	list  []*core.Tensor
	rank  int // of the indices' common shape inside vmap
	first int // the dimension of the indexed part at which the indices' dimensions stand inside vmap
	// ahead says that they stand in front of all others in what the list picks of the tensor behind: the batch is not indexed.
	ahead bool
	// mixed says that the batch is indexed, and they stand behind it although others come first.
	mixed bool
}

// indices returns how index tensors pick from the tensor behind a batched one, or an error; nil where it has no rule.
func (u *use) indices(x *core.Tensor, list []*core.Tensor) (*indexed, error) {
	s := &indexed{}
	var at []int
	some := false
	dim := 0
	for _, t := range list {
		if t == nil {
			dim++
			continue
		}
		if Depth(t) > 0 && isMask(t) {
			return nil, core.Errorf(core.NotImplemented, u.Op, "not possible inside vmap: the shape of what a mask picks depends on values; use where, or multiply by the mask")
		}
		for range max(maskDims(t), 1) {
			at = append(at, dim)
			dim++
		}
		if q, ok := t.Parts().(*parts); ok && q.level == u.Level {
			some = true
		}
		if isMask(t) {
			s.rank = max(s.rank, 1)
		} else {
			s.rank = max(s.rank, t.Dim())
		}
	}
	adjacent := len(at) > 0 && at[len(at)-1]-at[0] == len(at)-1
	if adjacent {
		s.first = at[0]
	}
	if !some {
		s.list = append([]*core.Tensor{nil}, list...)
		s.ahead = !adjacent
		return s, nil
	}
	for _, t := range list {
		if t != nil && isMask(t) {
			return nil, nil
		}
	}
	s.list = []*core.Tensor{u.parted(x, s.rank)}
	for _, t := range list {
		if q, ok := t.Parts().(*parts); ok && q.level == u.Level {
			t = widened(q.here, s.rank)
		}
		s.list = append(s.list, t)
	}
	s.mixed = s.first > 0
	return s, nil
}

func maskDims(t *core.Tensor) int {
	if isMask(t) {
		return t.Dim()
	}
	return 1
}

// index picks what index tensors say.
func index(u *use) []*core.Tensor {
	fail := func(err error) []*core.Tensor { return []*core.Tensor{core.ErrorTensor(err)} }
	x := u.whole[0]
	if !u.batched[0] {
		x = u.repeated(x)
	}
	s, err := u.indices(x, argument[[]*core.Tensor](u, 1))
	if err != nil {
		return fail(err)
	}
	if s == nil {
		return nil
	}
	out := op.IndexTensors(x, s.list)
	if out.Err() != nil {
		return fail(out.Err())
	}
	from, to := span(0, s.rank), span(1, s.rank)
	switch {
	case s.ahead: // [indices, batch, rest]
	case s.mixed: // [batch, indices, rest]
		from, to = span(1, s.rank), span(1+s.first, s.rank)
	default:
		return []*core.Tensor{u.with(out)}
	}
	return []*core.Tensor{u.with(op.Movedim(out, from, to))}
}

// span returns n numbers from start on.
func span(start, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = start + i
	}
	return out
}

// indexPut writes to what index tensors say.
func indexPut(u *use) []*core.Tensor {
	fail := func(err error) []*core.Tensor { return []*core.Tensor{core.ErrorTensor(err)} }
	list, values := argument[[]*core.Tensor](u, 1), u.tensors[len(u.tensors)-1]
	accumulate := argument[bool](u, 3)
	if out := u.maskedPut(list, values, accumulate); out != nil {
		return out
	}
	x := u.whole[0]
	if !u.batched[0] {
		x = u.repeated(x)
	}
	s, err := u.indices(x, list)
	if err != nil {
		return fail(err)
	}
	if s == nil || s.ahead || s.mixed {
		return nil
	}
	v := u.whole[len(u.whole)-1]
	if u.batched[len(u.batched)-1] {
		// The picked part inside vmap has as many dimensions as the values broadcast to.
		picked := s.rank + u.tensors[0].Dim()
		for _, t := range list {
			if t != nil {
				picked -= maskDims(t)
			}
		}
		for values.Dim() > picked && values.Size(0) == 1 {
			values = op.Squeeze(values, 0)
		}
		q, ok := values.Parts().(*parts)
		if !ok || values.Dim() > picked {
			return nil
		}
		v = widened(q.here, picked)
	}
	if changes(u.Op) {
		if out := op.IndexPutInPlace(x, s.list, v, accumulate); out.Err() != nil {
			return fail(out.Err())
		}
		return u.tensors[:1]
	}
	return []*core.Tensor{u.with(op.IndexPut(x, s.list, v, accumulate))}
}

// maskedPut is for a number, or a tensor with one, put where a mask says.
func (u *use) maskedPut(list []*core.Tensor, values *core.Tensor, accumulate bool) []*core.Tensor {
	if len(list) != 1 || list[0] == nil || list[0].DType() != core.Bool || accumulate || !values.IsNumber() && values.Dim() > 0 {
		return nil
	}
	x, mask := u.tensors[0], list[0]
	for mask.Dim() < x.Dim() {
		mask = op.Unsqueeze(mask, -1)
	}
	if mask.Err() != nil || mask.Dim() != x.Dim() {
		return nil
	}
	for d, n := range list[0].Shape() {
		if x.Size(d) != n {
			return nil
		}
	}
	if changes(u.Op) {
		return []*core.Tensor{op.MaskedFillInPlace(x, mask, values)}
	}
	return []*core.Tensor{op.MaskedFill(x, mask, values)}
}

// indexSelect picks slices along a dimension.
func indexSelect(u *use) *core.Tensor {
	x, at := u.tensors[0], u.tensors[1]
	if x.Dim() == 0 || at.Dim() > 1 {
		return nil
	}
	d, err := core.WrapDim(u.Op, argument[int](u, 1), x.Dim())
	if err != nil {
		return core.ErrorTensor(err)
	}
	if u.only(0) {
		return u.with(op.IndexSelect(u.whole[0], d+1, at))
	}
	return op.Gather(x, d, u.spread(at, x, d))
}

// spread returns the indices of slices along dimension d of a tensor as those of the slices' elements.
func (u *use) spread(at, x *core.Tensor, d int) *core.Tensor {
	at = op.Reshape(at, -1)
	if at.Err() != nil {
		return at
	}
	shape := slices.Repeat([]int{1}, x.Dim())
	shape[d] = at.Size(0)
	whole := slices.Clone(x.Shape())
	whole[d] = at.Size(0)
	return op.Expand(op.Reshape(at, shape...), whole...)
}

// indexWrite changes slices along a dimension.
func indexWrite(u *use) *core.Tensor {
	x, at, src := u.tensors[0], u.tensors[2-1], u.tensors[2]
	if x.Dim() == 0 || at.Dim() != 1 {
		return nil
	}
	d, err := core.WrapDim(u.Op, argument[int](u, 1), x.Dim())
	if err != nil {
		return core.ErrorTensor(err)
	}
	fill := u.Op == "index_fill"
	if !fill && src.Dim() != x.Dim() || fill && u.given(2) && u.batched[2] {
		return nil
	}
	if !u.batched[1] {
		args, tensors := slices.Clone(u.Args), u.all()
		args[1], tensors[1] = d+1, at
		if fill {
			tensors[2] = u.whole[2]
		}
		return u.callWith(args, tensors)[0]
	}
	if fill {
		if !src.IsNumber() {
			return nil
		}
		return op.Scatter(x, d, u.spread(at, x, d), src)
	}
	for e, n := range src.Shape() {
		if e == d && n != at.Size(0) || e != d && n != x.Size(e) {
			return nil
		}
	}
	at = u.spread(at, x, d)
	switch u.Op {
	case "index_add":
		if alpha := argument[float64](u, 4); alpha != 1 {
			src = op.Mul(src, core.Num(alpha))
		}
		return op.ScatterAdd(x, d, at, src)
	case "index_copy":
		return op.Scatter(x, d, at, src)
	case "index_reduce":
		return op.ScatterReduce(x, d, at, src, argument[string](u, 4), argument[bool](u, 5))
	}
	return nil
}

// takeAlong picks elements along a dimension.
func takeAlong(u *use) *core.Tensor {
	x, at := u.tensors[0], u.tensors[1]
	dim, _ := u.Args[2].(*int)
	if dim == nil {
		return op.Gather(op.Reshape(x, -1), 0, op.Reshape(at, -1))
	}
	d, err := core.WrapDim(u.Op, *dim, x.Dim())
	if err != nil {
		return core.ErrorTensor(err)
	}
	if x.Dim() != at.Dim() || x.Dim() == 0 {
		return nil
	}
	left, right := slices.Clone(x.Shape()), slices.Clone(at.Shape())
	for e := range left {
		if e == d {
			continue
		}
		n := max(left[e], right[e])
		if left[e] == 0 || right[e] == 0 {
			n = 0
		}
		left[e], right[e] = n, n
	}
	return op.Gather(op.Expand(x, left...), d, op.Expand(at, right...))
}

// written puts a tensor in the place of a part of another.
func written(u *use) []*core.Tensor {
	w := where{args: []int{2}}
	if u.Op == "diagonal_scatter" {
		w.args = []int{3, 4}
	}
	n := u.tensors[0].Dim()
	args, err := w.shift(u, max(n, 1))
	if err != nil || n == 0 {
		return nil
	}
	return u.callWith(args, u.all())
}
