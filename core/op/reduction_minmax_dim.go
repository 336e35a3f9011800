package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Max returns the largest elements of x along dim and their indices as int64: the first of equal ones, or of NaNs. The
// gradient goes to the element at the index. For the largest element over several dimensions see [Amax].
func Max(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "max", x, dim, keepdim)
	}
	return chooseAlong("max", contract.ArgMax, x, dim, keepdim)
}

// Min returns the smallest elements of x along dim and their indices as int64: the first of equal ones, or of NaNs. The
// gradient goes to the element at the index. For the smallest element over several dimensions see [Amin].
func Min(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "min", x, dim, keepdim)
	}
	return chooseAlong("min", contract.ArgMin, x, dim, keepdim)
}

func chooseAlong(name string, k core.KernelID, x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	op := begin(name, &x)
	r := op.reduction(x, []int{dim}, keepdim)
	op.nonempty(x, r)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	return op.choose(x, append(r.dims, 0)[0], r.shape, false, func(values, indices *core.Tensor) {
		op.launch(op.call(k).Out(indices).Out(values).In(x).Dims(r.dims))
	})
}

// choose makes the two results of an operation that chooses elements of x along dim, of the given shape, and records
// that the gradient of the values goes to the elements at the indices, or evenly to all that equal them.
func (op *opContext) choose(x *core.Tensor, dim int, shape []int, even bool, launch func(values, indices *core.Tensor)) (values, indices *core.Tensor) {
	values = op.out(x.DType(), shape)
	indices = op.out(core.Int64, shape)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	launch(values, indices)
	if op.grad {
		var n *core.Node
		if even {
			n = op.node(evenDeriv, x).Save(x).SaveOutput(values, 0)
		} else {
			n = op.node(choiceDeriv, x).Save(indices)
		}
		n.Ints = []int{dim}
		op.attach(n, values, indices)
	}
	return op.done2(values, indices)
}

func choiceDeriv(ctx *core.BackwardContext) {
	g, dim, shape := ctx.GradAt(0), ctx.Node.Ints[0], ctx.InputShape(0)
	if g == nil {
		return
	}
	if len(shape) == 0 {
		ctx.Set(0, Reshape(g))
		return
	}
	index := ctx.Saved(0)
	if g.Dim() < len(shape) {
		g, index = Unsqueeze(g, dim), Unsqueeze(index, dim)
	}
	ctx.Set(0, ScatterAddInPlace(zerosFor(g, g.DType(), slices.Clone(shape)), dim, index, g))
}
