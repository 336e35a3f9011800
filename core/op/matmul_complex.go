package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// multiplyComplex is multiply for complex matrices, as one product of real matrices. Where no kernel does it as it reads them, it arranges
// the factor that costs less anew.
func (op *opContext) multiplyComplex(out, x, y *core.Tensor, f productForm, beta float64, change bool) {
	if f.ta {
		x = op.own(swapped(op.mode, x))
	}
	if f.tb {
		y = op.own(swapped(op.mode, y))
	}
	// A few rows or columns are multiplied without packing the other factor, if it is arranged and not small.
	const few, small = 4, 1024
	if (x.Size(-2) > few || y.Size(-2)*y.Size(-1) <= small) && 2*y.Size(-1) > few && x.Device().Supports(contract.ComplexMatMul) {
		if !rowsDense(x) {
			x = op.dense(x)
		}
		if op.err == nil {
			c := op.call(contract.ComplexMatMul).Out(out).In(x).In(y).Float(f.alpha, beta)
			c.Work = max(c.Work, productWork(x.DType(), 4*out.Numel()*x.Size(-1)))
			c.InPlace = change
			op.launch(c)
		}
		return
	}
	// What each way reads and writes beside the product.
	right, left := 3*y.Numel(), 2*x.Numel()+5*out.Numel()
	if !rowsDense(x) {
		right += 2 * x.Numel()
	}
	if !rowsDense(y) {
		left += 2 * y.Numel()
	}
	if left < right && beta == 0 {
		op.multiplyParts(out, x, y, f.alpha)
	} else {
		op.multiplyTurned(out, x, y, f.alpha, beta, change)
	}
}

// multiplyTurned multiplies by twice as many rows. A row of x in memory is the row of its real and imaginary parts in turn. Below each row
// of y it needs i times the row, so that the products of the parts add up to those of y's rows in memory.
func (op *opContext) multiplyTurned(out, x, y *core.Tensor, alpha, beta float64, change bool) {
	part, dims := y.DType().Part(), y.Dim()
	shape := slices.Clone(y.Shape())
	shape[dims-2], shape[dims-1] = 2*shape[dims-2], 2*shape[dims-1]
	left, right := op.flatRows(x), op.temp(part, shape...)
	if op.err != nil {
		return
	}
	row := func(i int) *core.Tensor { return op.own(complexRows(op.mode, right, y, 2, i)) }
	op.launch(op.call(turnsOp.complex.ids[computeType(part)]).OutParts(row(0)).OutParts(row(1)).InParts(y))
	op.multiply(op.own(flatParts(op.mode, out)), left, right, nil, productForm{alpha: alpha}, beta, change)
}

// multiplyParts multiplies the real parts of x, and below them its imaginary parts, by the rows of y in memory. The products with the
// imaginary parts are to be multiplied by i.
func (op *opContext) multiplyParts(out, x, y *core.Tensor, alpha float64) {
	part, dims := x.DType().Part(), x.Dim()
	stacked := slices.Clone(x.Shape())
	stacked[dims-2] *= 2
	products := slices.Clone(out.Shape())
	products[out.Dim()-2], products[out.Dim()-1] = 2*products[out.Dim()-2], 2*products[out.Dim()-1]
	left, right, sums := op.temp(part, stacked...), op.flatRows(y), op.temp(part, products...)
	if op.err != nil {
		return
	}
	for i := range 2 {
		to := core.WrapTensor(op.mode, left.Storage(), part, x.Shape(), left.Strides(), left.Offset()+i*x.Size(-2)*x.Size(-1))
		op.launch(op.call(contract.Copy).Out(op.own(to)).In(op.own(half(op.mode, x, i))))
	}
	op.multiply(sums, left, right, nil, productForm{alpha: alpha}, 0, false)
	c := op.call(addTurnsOp.complex.ids[computeType(part)]).OutParts(out)
	for i := range 2 {
		c.InParts(op.own(complexRows(op.mode, sums, out, 1, i*out.Size(-2))))
	}
	op.launch(c)
}

// rowsDense reports whether the elements of each row lie next to each other in memory.
func rowsDense(z *core.Tensor) bool { return z.Strides()[z.Dim()-1] == 1 || z.Size(-1) == 1 }

// flatRows returns the matrix over the parts of z, whose rows must be dense, or of a copy of it.
func (op *opContext) flatRows(z *core.Tensor) *core.Tensor {
	if op.err == nil && !rowsDense(z) {
		z = op.dense(z)
	}
	if op.err != nil {
		return z
	}
	return op.own(flatParts(op.mode, z))
}

// complexRows returns every step-th row of a contiguous real matrix, from the given one on, as complex numbers of the dtype and shape of z.
func complexRows(m core.Mode, t, z *core.Tensor, step, first int) *core.Tensor {
	n, cols := z.Dim(), z.Size(-1)
	strides := slices.Clone(t.Strides())
	for d := range strides {
		strides[d] /= 2
	}
	strides[n-2], strides[n-1] = step*cols, 1
	return core.WrapTensor(m, t.Storage(), z.DType(), z.Shape(), strides, t.Offset()/2+first*cols)
}

// swapped returns t with its last two dimensions transposed, without a place in the graph.
func swapped(m core.Mode, t *core.Tensor) *core.Tensor {
	shape, strides := slices.Clone(t.Shape()), slices.Clone(t.Strides())
	slices.Reverse(shape[len(shape)-2:])
	slices.Reverse(strides[len(strides)-2:])
	return core.WrapTensor(m, t.Storage(), t.DType(), shape, strides, t.Offset())
}

// flatParts returns a tensor over the parts of z, whose rows are dense, of which each row has twice as many, without a place in the graph.
func flatParts(m core.Mode, z *core.Tensor) *core.Tensor {
	shape, strides := slices.Clone(z.Shape()), partStrides(z)
	shape[len(shape)-1] *= 2
	strides[len(strides)-1] = 1
	return core.WrapTensor(m, z.Storage(), z.DType().Part(), shape, strides, 2*z.Offset())
}
