package vmap

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// moreRules are those of operations that programs seldom use inside vmap.
func moreRules(add func(r rule, names string)) {
	add(composed(func(u *use) *core.Tensor {
		x, k := u.tensors[0], argument[int](u, 1)
		if x.Dim() == 1 {
			return op.DiagEmbed(x, k, 0, 1)
		}
		if x.Dim() != 2 {
			return nil
		}
		return op.Clone(op.Diagonal(x, k, 0, 1))
	}), "diag")
	add(composed(func(u *use) *core.Tensor {
		if u.tensors[0].Dim() != 2 {
			return nil
		}
		return op.Sum(op.Diagonal(u.tensors[0], 0, 0, 1), nil, false)
	}), "trace")
	add(composed(func(u *use) *core.Tensor {
		return op.VectorNorm(op.Sub(u.tensors[0], u.tensors[1]), argument[float64](u, 2), nil, op.ReduceOptions{})
	}), "dist")
	add(leading(1), "pairwise_distance")
	add(composed(func(u *use) *core.Tensor {
		x, y := u.tensors[0], u.tensors[1]
		switch {
		case x.Dim() == 0 || y.Dim() == 0:
			return op.Mul(x, y)
		case x.Dim() == 1 || y.Dim() > 2:
			return nil
		case y.Dim() == 1:
			return op.MatMul(x, y)
		}
		return op.MatMul(x, op.Transpose(y, 0, 1))
	}), "inner")
	add(composed(kron), "kron")
	add(composed(tensorDot), "tensordot")
	add(func(u *use) []*core.Tensor {
		if u.only(0, 1) {
			tensors := u.all()
			tensors[2], tensors[3] = u.whole[2], u.whole[3]
			return u.call(tensors)
		}
		out := op.Einsum("...i,oij,...j->...o", u.tensors[0], u.tensors[2], u.tensors[1])
		if bias := u.tensors[3]; bias != nil {
			out = op.Add(out, bias)
		}
		return []*core.Tensor{out}
	}, "bilinear")
	add(grid, "meshgrid")
	add(quantile, "quantile nanquantile")
	add(searched, "searchsorted")
	add(func(u *use) []*core.Tensor {
		n := u.tensors[0].Dim()
		for i, t := range u.tensors {
			if want := n - i%2; u.Op != "linalg_lstsq" && t.Dim() != want || u.Op == "linalg_lstsq" && t.Dim() != n {
				return nil // pivots and factors of reflections are vectors
			}
		}
		return u.call(u.all())
	}, "linalg_lstsq linalg_lu_solve lu_unpack linalg_ldl_solve linalg_householder_product ormqr")
	add(func(u *use) []*core.Tensor {
		if u.only(0) {
			return u.call(u.whole)
		}
		return []*core.Tensor{op.SearchSorted(u.tensors[1], u.tensors[0], argument[op.SearchOptions](u, 2))}
	}, "bucketize")
	add(func(u *use) []*core.Tensor {
		if !u.only(0) {
			return nil
		}
		single := 1
		if u.Op == "istft" {
			single = 2
		}
		switch u.tensors[0].Dim() {
		case single:
			return u.call(u.whole)
		case single + 1:
			return u.foldedFirst()
		}
		return nil
	}, "stft istft")
}

// kron is the Kronecker product: the dimensions of both tensors one after the other, and joined in pairs.
func kron(u *use) *core.Tensor {
	x, y := u.tensors[0], u.tensors[1]
	n := max(x.Dim(), y.Dim())
	var left, right, joined []int
	for d := range n {
		a, b := 1, 1
		if i := d - n + x.Dim(); i >= 0 {
			a = x.Size(i)
		}
		if i := d - n + y.Dim(); i >= 0 {
			b = y.Size(i)
		}
		left, right, joined = append(left, a, 1), append(right, 1, b), append(joined, a*b)
	}
	return op.Reshape(op.Mul(op.Reshape(x, left...), op.Reshape(y, right...)), joined...)
}

// tensorDot is tensordot in index notation.
func tensorDot(u *use) *core.Tensor {
	x, y := u.tensors[0], u.tensors[1]
	left, right := slices.Clone(argument[[]int](u, 2)), slices.Clone(argument[[]int](u, 3))
	if len(left) != len(right) || x.Dim()+y.Dim() > 24 {
		return nil
	}
	letters := func(from byte, n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = from + byte(i)
		}
		return out
	}
	a, b := letters('a', x.Dim()), letters('a'+byte(x.Dim()), y.Dim())
	var gone []byte
	for i := range left {
		d, err := core.WrapDim(u.Op, left[i], x.Dim())
		if err != nil {
			return core.ErrorTensor(err)
		}
		e, err := core.WrapDim(u.Op, right[i], y.Dim())
		if err != nil {
			return core.ErrorTensor(err)
		}
		if x.Dim() == 0 || y.Dim() == 0 || x.Size(d) != y.Size(e) {
			return nil
		}
		b[e] = a[d]
		gone = append(gone, a[d])
	}
	out := slices.DeleteFunc(slices.Concat(a, b), func(c byte) bool { return slices.Contains(gone, c) })
	return op.Einsum(string(a)+","+string(b)+"->"+string(out), x, y)
}

// grid is for meshgrid.
func grid(u *use) []*core.Tensor {
	n := len(u.tensors)
	sizes := make([]int, n)
	for i, t := range u.tensors {
		if t.Dim() > 1 {
			return nil
		}
		sizes[i] = t.Numel()
	}
	at := through(n)
	for i := range at {
		at[i] = i
	}
	if argument[string](u, 1) == "xy" && n > 1 {
		at[0], at[1] = 1, 0
		sizes[0], sizes[1] = sizes[1], sizes[0]
	}
	out := make([]*core.Tensor, n)
	for i, t := range u.tensors {
		shape := slices.Repeat([]int{1}, n)
		shape[at[i]] = -1
		out[i] = op.Expand(op.Reshape(t, shape...), sizes...)
	}
	return out
}

// quantile is for quantiles that are the same for all parts.
func quantile(u *use) []*core.Tensor {
	x, o := u.tensors[0], argument[op.QuantileOptions](u, 2)
	if !u.only(0) || x.Dim() == 0 || o.Dim == nil && o.KeepDim {
		return nil
	}
	whole, d := u.whole[0], 1
	if o.Dim == nil {
		whole = op.Reshape(whole, u.size, -1)
	} else {
		v, err := u.shifted(*o.Dim, x.Dim())
		if err != nil {
			return []*core.Tensor{core.ErrorTensor(err)}
		}
		d = v
	}
	if whole.Err() != nil {
		return []*core.Tensor{whole}
	}
	o.Dim = &d
	out := u.Call([]any{whole, u.Args[1], o})[0]
	if u.given(1) && u.tensors[1].Dim() == 1 { // the quantiles lie along dimension 0
		out = op.Movedim(out, []int{1}, []int{0})
	}
	return []*core.Tensor{u.with(out)}
}

// searched is for searchsorted: sequences of one dimension serve values of any shape.
func searched(u *use) []*core.Tensor {
	sequence, values := u.tensors[0], u.tensors[1]
	switch {
	case !u.given(1):
		return nil
	case u.only(1) && sequence.Dim() == 1:
		return u.call(u.whole)
	case sequence.Dim() == values.Dim():
		return u.call(u.all())
	case sequence.Dim() != 1:
		return nil
	}
	tensors := u.all()
	if tensors[1] = op.Reshape(tensors[1], u.size, -1); tensors[1].Err() != nil {
		return tensors[1:2]
	}
	out := u.Call(op.Replaced(u.Args, tensors))[0]
	return []*core.Tensor{u.with(op.Reshape(out, append([]int{u.size}, values.Shape()...)...))}
}
