package vmap

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// composedRules are those of operations that are made of others, for whose tensors these have rules.
func composedRules(add func(r rule, names string)) {
	add(composed(blockDiagonal), "block_diag")
	add(composed(func(u *use) *core.Tensor {
		if slices.ContainsFunc(u.tensors, func(t *core.Tensor) bool { return t.IsNumber() || t.Dim() > 1 }) {
			return nil
		}
		if len(u.tensors) == 1 {
			return op.Reshape(u.tensors[0], -1)
		}
		grids := op.Meshgrid(u.tensors, "ij")
		for i, g := range grids {
			grids[i] = op.Reshape(g, -1)
		}
		return op.Stack(grids, 1)
	}), "cartesian_prod")
	add(composed(func(u *use) *core.Tensor {
		x, r := u.tensors[0], argument[int](u, 1)
		if x.Dim() != 1 || r < 0 {
			return nil
		}
		list := op.Arange(nil, core.IntNum(int64(x.Size(0))), nil, op.TensorOptions{Device: x.Device()})
		which := op.Combinations(list, r, argument[bool](u, 2))
		if which.Err() != nil {
			return which
		}
		return op.Reshape(op.IndexSelect(x, 0, op.Reshape(which, -1)), which.Shape()...)
	}), "combinations")
	add(composed(func(u *use) *core.Tensor {
		x, n := u.tensors[0], argument[int](u, 1)
		if x.Dim() != 1 {
			return nil
		}
		if n < 0 {
			n = x.Size(0)
		}
		return u.with(op.Unflatten(op.Vander(op.Reshape(u.whole[0], -1), n, argument[bool](u, 2)), 0, u.size, x.Size(0)))
	}), "vander")
	add(composed(func(u *use) *core.Tensor {
		x := u.tensors[0]
		if x.Dim() < 2 {
			return nil
		}
		d, err := u.shifted(argument[int](u, 2), x.Dim())
		if err != nil {
			return core.ErrorTensor(err)
		}
		// The things of all parts along the dimension lie along one.
		things := op.Flatten(op.Movedim(u.whole[0], []int{d}, []int{1}), 0, 1)
		out := op.Unflatten(op.Renorm(things, argument[float64](u, 1), 0, argument[float64](u, 3)), 0, u.size, x.Size(d-1))
		return u.with(op.Movedim(out, []int{1}, []int{d}))
	}), "renorm")
	add(composed(func(u *use) *core.Tensor {
		x, y := u.tensors[0], u.tensors[1]
		if !slices.Equal(x.Shape(), y.Shape()) {
			d := core.Bool
			return op.Full([]int{}, core.IntNum(0), op.TensorOptions{DType: &d, Device: x.Device()})
		}
		return op.All(op.Eq(x, y), nil, false)
	}), "equal")
	add(composed(covariance), "cov")
	add(composed(histogram), "histc")
}

// blockDiagonal puts matrices along the diagonal of one.
func blockDiagonal(u *use) *core.Tensor {
	cols := 0
	blocks := make([]*core.Tensor, len(u.tensors))
	for i, t := range u.tensors {
		if t.IsNumber() || t.Dim() > 2 {
			return nil
		}
		shape := append(slices.Repeat([]int{1}, 2-t.Dim()), t.Shape()...)
		blocks[i] = op.Reshape(t, shape...)
		cols += shape[1]
	}
	left := 0
	for i, b := range blocks {
		if b.Err() != nil {
			return b
		}
		right := left + b.Size(1)
		blocks[i] = op.Pad(b, []int{left, cols - right}, op.PadOptions{})
		left = right
	}
	return op.Cat(blocks, 0)
}

// covariance is for cov, of observations that all count the same.
func covariance(u *use) *core.Tensor {
	x, o := u.tensors[0], argument[op.CovOptions](u, 2)
	if x.Dim() > 2 || !x.DType().Differentiable() || o.FWeights != nil || o.AWeights != nil {
		return nil
	}
	rows := x
	if x.Dim() < 2 {
		rows = op.Reshape(x, 1, -1)
	}
	if rows.Err() != nil {
		return rows
	}
	centred := op.Sub(rows, op.Mean(rows, []int{1}, true))
	turned := op.Transpose(centred, 0, 1)
	if x.DType().IsComplex() {
		turned = op.Conj(turned)
	}
	c := op.Div(op.MatMul(centred, turned), core.Num(max(float64(rows.Size(1))-argument[float64](u, 1), 0)))
	if rows.Size(0) == 1 {
		return op.Reshape(c)
	}
	return c
}

// histogram is for histc of a given range.
func histogram(u *use) *core.Tensor {
	x, bins, low, high := u.tensors[0], argument[int](u, 1), argument[float64](u, 2), argument[float64](u, 3)
	if bins <= 0 || !(low < high) || !x.DType().IsFloat() {
		return nil
	}
	// As in the kernel, which bin an element lies in is computed in float32, but for float64.
	flat := op.Reshape(u.whole[0].Detach(), u.size, -1)
	if x.DType() != core.Float64 {
		flat, low, high = op.To(flat, core.Float32), float64(float32(low)), float64(float32(high))
	}
	width := high - low
	if x.DType() != core.Float64 {
		width = float64(float32(high) - float32(low))
	}
	last := core.IntNum(int64(bins - 1))
	inside := op.LogicalAnd(op.Ge(flat, core.Num(low)), op.Le(flat, core.Num(high)))
	at := op.Div(op.Mul(op.Sub(flat, core.Num(low)), core.Num(float64(bins))), core.Num(width))
	at = op.Minimum(op.To(op.Where(inside, at, core.Num(0)), core.Int64), last)
	counts := op.ZerosWith([]int{u.size, bins}, op.TensorOptions{DType: ptr(core.Int64), Device: flat.Device()})
	return u.with(op.To(op.ScatterAdd(counts, 1, at, op.To(inside, core.Int64)), x.DType()))
}

func ptr[T any](v T) *T { return &v }
