package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Max returns the largest elements of x along dim and their indices as int64: the first of equal ones, or of NaNs. The
// gradient goes to the element at the index. For the largest element over several dimensions see [Amax].
func Max(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	return chooseAlong("max", argMaxKernel, x, dim, keepdim)
}

// Min returns the smallest elements of x along dim and their indices as int64: the first of equal ones, or of NaNs. The
// gradient goes to the element at the index. For the smallest element over several dimensions see [Amin].
func Min(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	return chooseAlong("min", argMinKernel, x, dim, keepdim)
}

func chooseAlong(name string, k core.KernelID, x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	a := beginTensor(name, x)
	r := a.reduction(x, []int{dim}, keepdim)
	a.nonempty(x, r)
	if a.err != nil {
		return a.fail(), a.fail()
	}
	return a.choose(x, append(r.dims, 0)[0], r.shape, func(values, indices *core.Tensor) {
		a.launch(a.call(k).Out(indices).Out(values).In(x).Dims(r.dims))
	})
}

// choose makes the two results of an operation that chooses elements of x along dim, of the given shape, and records
// that the gradient of the values goes to the elements at the indices.
func (a *application) choose(x *core.Tensor, dim int, shape []int, launch func(values, indices *core.Tensor)) (values, indices *core.Tensor) {
	values = a.out(x.DType(), shape)
	indices = a.out(core.Int64, shape)
	if a.err != nil {
		return a.fail(), a.fail()
	}
	launch(values, indices)
	if a.grad {
		n := a.node(choiceDeriv, x).Save(indices)
		n.Ints = []int{dim}
		a.attach(n, values, indices)
	}
	return a.done2(values, indices)
}

func choiceDeriv(d *core.Derivation) {
	g, dim, shape := d.GradAt(0), d.Node.Ints[0], d.InputShape(0)
	if g == nil {
		return
	}
	if len(shape) == 0 {
		d.Set(0, Reshape(g))
		return
	}
	index := d.Saved(0)
	if g.Dim() < len(shape) {
		g, index = Unsqueeze(g, dim), Unsqueeze(index, dim)
	}
	d.Set(0, ScatterAddInPlace(zerosFor(g, g.DType(), slices.Clone(shape)), dim, index, g))
}
