package vmap

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// productRules are those of matrix products.
func productRules(add func(r rule, names string)) {
	add(product, "matmul mm mv bmm")
	add(composed(func(u *use) *core.Tensor {
		x, y := u.tensors[0], u.tensors[1]
		if x.Dim() != 1 || y.Dim() != 1 || x.DType().IsComplex() || y.DType().IsComplex() || x.Size(0) != y.Size(0) {
			return nil
		}
		return op.MatMul(x, y)
	}), "dot vdot")
	add(composed(func(u *use) *core.Tensor {
		x, y := u.tensors[0], u.tensors[1]
		if x.Dim() != 1 || y.Dim() != 1 {
			return nil
		}
		return op.Mul(op.Unsqueeze(x, -1), y)
	}), "outer")
	add(linear, "linear")
	add(composed(func(u *use) *core.Tensor { return added(u, op.MatMul(u.tensors[1], u.tensors[2])) }), "addmm baddbmm addmv")
	add(composed(func(u *use) *core.Tensor {
		return added(u, op.Sum(op.MatMul(u.tensors[1], u.tensors[2]), []int{0}, false))
	}), "addbmm")
	add(composed(func(u *use) *core.Tensor {
		return added(u, op.Mul(op.Unsqueeze(u.tensors[1], -1), u.tensors[2]))
	}), "addr")
	add(einsum, "einsum")
	add(composed(func(u *use) *core.Tensor {
		out := u.tensors[0]
		for _, t := range u.tensors[1:] {
			out = op.MatMul(out, t)
		}
		return out
	}), "chain_matmul multi_dot")
	add(func(u *use) []*core.Tensor {
		m, b := u.tensors[0], u.tensors[1]
		if m.Dim() < 2 || b.Dim() < 1 {
			return nil
		}
		vector := slices.Equal(b.Shape(), m.Shape()[:m.Dim()-1])
		if !vector && b.Dim() < 2 {
			return nil
		}
		if !vector {
			return u.call(u.aligned())
		}
		tensors := u.all()
		out := op.Solve(tensors[0], op.Unsqueeze(tensors[1], -1))
		return []*core.Tensor{u.with(op.Squeeze(out, -1))}
	}, "linalg_solve")
	add(leading(2), "linalg_solve_triangular")
	add(leading(2), "cdist pdist")
}

// checked is the number of dimensions that the tensors of a product must have.
var checked = map[string][2]int{"mm": {2, 2}, "mv": {2, 1}, "bmm": {3, 3}}

// sparseProduct is for the product of a sparse matrix, the same for the whole batch, and a dense matrix or vector: the batch is more
// columns to the right of it, and more rows to the left.
func sparseProduct(u *use) []*core.Tensor {
	x, y, a, b := u.tensors[0], u.tensors[1], u.whole[0], u.whole[1]
	switch {
	case x.IsSparse() && !u.batched[0] && x.Dim() == 2 && !y.IsSparse() && y.Dim() == 1:
		return []*core.Tensor{u.with(op.Transpose(op.MatMul(a, op.Transpose(b, 0, 1)), 0, 1))}
	case x.IsSparse() && !u.batched[0] && x.Dim() == 2 && !y.IsSparse() && y.Dim() == 2:
		columns := op.Reshape(op.Permute(b, 1, 0, 2), y.Size(0), -1)
		if y.Numel() == 0 || columns.Err() != nil {
			return nil
		}
		out := op.Reshape(op.MatMul(a, columns), x.Size(0), b.Size(0), y.Size(1))
		return []*core.Tensor{u.with(op.Permute(out, 1, 0, 2))}
	case y.IsSparse() && !u.batched[1] && y.Dim() == 2 && !x.IsSparse() && x.Dim() == 1:
		return []*core.Tensor{u.with(op.MatMul(a, b))}
	case y.IsSparse() && !u.batched[1] && y.Dim() == 2 && !x.IsSparse() && x.Dim() == 2 && x.Numel() > 0:
		out := op.MatMul(op.Flatten(a, 0, 1), b)
		return []*core.Tensor{u.with(op.Reshape(out, a.Size(0), x.Size(0), y.Size(1)))}
	}
	return nil
}

// product is for products of matrices and vectors.
func product(u *use) []*core.Tensor {
	x, y := u.tensors[0], u.tensors[1]
	if want, ok := checked[u.Op]; ok && (x.Dim() != want[0] || y.Dim() != want[1]) || x.Dim() == 0 || y.Dim() == 0 || u.Op == "bmm" && x.Size(0) != y.Size(0) {
		return nil
	}
	a, b := u.whole[0], u.whole[1]
	if x.IsSparse() || y.IsSparse() {
		return sparseProduct(u)
	}
	switch {
	case !u.batched[1] && y.Dim() <= 2:
		return []*core.Tensor{u.with(op.MatMul(a, b))} // the batch is one more dimension of rows
	case !u.batched[0] && x.Dim() == 2 && y.Dim() == 1:
		return []*core.Tensor{u.with(op.MatMul(b, op.Transpose(a, 0, 1)))}
	}
	row, column := x.Dim() == 1, y.Dim() == 1
	if row {
		a = op.Unsqueeze(a, -2)
	}
	if column {
		b = op.Unsqueeze(b, -1)
	}
	n := max(x.Dim(), y.Dim(), 2)
	if u.batched[0] {
		a = widened(a, n)
	}
	if u.batched[1] {
		b = widened(b, n)
	}
	out := op.MatMul(a, b)
	if column {
		out = op.Squeeze(out, -1)
	}
	if row && column {
		out = op.Squeeze(out, -1)
	} else if row {
		out = op.Squeeze(out, -2)
	}
	return []*core.Tensor{u.with(out)}
}

// linear is for x times the transpose of weight, plus bias.
func linear(u *use) []*core.Tensor {
	x, weight, bias := u.tensors[0], u.tensors[1], u.tensors[2]
	switch {
	case weight.Dim() != 2 || x.Dim() == 0:
		return nil
	case u.only(0):
		return u.call(u.whole)
	case bias == nil:
		return []*core.Tensor{op.MatMul(x, op.Transpose(weight, 0, 1))}
	}
	out := op.MatMul(x, op.Transpose(weight, 0, 1))
	return []*core.Tensor{op.Add(out, inType(bias, out))}
}

// inType returns what is added to a product in the product's dtype, which autocast may have chosen.
func inType(t, product *core.Tensor) *core.Tensor {
	if t.Err() != nil || product.Err() != nil || t.DType() == product.DType() {
		return t
	}
	return op.To(t, product.DType())
}

// added returns beta times the first tensor plus alpha times a product.
func added(u *use, product *core.Tensor) *core.Tensor {
	beta, alpha := argument[float64](u, 3), argument[float64](u, 4)
	if alpha != 1 {
		product = op.Mul(product, core.Num(alpha))
	}
	input := inType(u.tensors[0], product)
	switch beta {
	case 0:
		return nil // the input takes part in derivatives all the same
	case 1:
		return op.Add(product, input)
	}
	return op.Add(product, op.Mul(input, core.Num(beta)))
}

// einsum gives the batched operands, and the result, a letter more.
func einsum(u *use) []*core.Tensor {
	equation := strings.ReplaceAll(argument[string](u, 0), " ", "")
	left, right, explicit := strings.Cut(equation, "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(u.tensors) {
		return nil
	}
	batch := ""
	for c := 'z'; c >= 'a' && batch == ""; c-- {
		if !strings.ContainsRune(equation, c) {
			batch = string(c)
		}
	}
	if batch == "" {
		return nil
	}
	if !explicit { // each letter that occurs once, in order
		if strings.Contains(left, ".") {
			right = "..."
		}
		for c := 'A'; c <= 'z'; c++ {
			if c <= 'Z' || c >= 'a' {
				if strings.Count(left, string(c)) == 1 {
					right += string(c)
				}
			}
		}
	}
	for i := range terms {
		if u.batched[i] {
			terms[i] = batch + terms[i]
		}
	}
	return []*core.Tensor{u.with(op.Einsum(strings.Join(terms, ",")+"->"+batch+right, u.whole...))}
}
