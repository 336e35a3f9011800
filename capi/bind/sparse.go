package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core/op"
)

// sizes reads a shape; of -1 dimensions it is nil.
func sizes(shape Ints, dims int64) []int {
	if dims < 0 {
		return nil
	}
	return append([]int{}, handle.Ints(shape, dims)...)
}

// SparseCOO returns a sparse tensor with values [entries, ...] at the indices [sparse dimensions, entries]. The shape of -1 dimensions is as
// small as the indices allow.
//
//plait:waits
func SparseCOO(indices Tensor, values Tensor, shape Ints, dims int64) (status Tensor) {
	defer protect("sparse_coo_tensor", &status)
	i, v := tensor(indices), tensor(values)
	defer using(i, v)()
	return result(op.SparseCOO(i, v, sizes(shape, dims)))
}

// SparseCSR returns a sparse matrix in compressed rows. The shape of -1 dimensions has as many columns as the indices need.
//
//plait:waits
func SparseCSR(crow Tensor, col Tensor, values Tensor, shape Ints, dims int64) (status Tensor) {
	defer protect("sparse_csr_tensor", &status)
	r, c, v := tensor(crow), tensor(col), tensor(values)
	defer using(r, c, v)()
	return result(op.SparseCSR(r, c, v, sizes(shape, dims)))
}

// SparseTo returns the tensor in another layout: 0 for an ordinary tensor, 1 for COO with the given number of sparse dimensions (-1 for
// all), 2 for CSR.
//
//plait:waits
func SparseTo(t Tensor, layout int64, dims int64) (status Tensor) {
	defer protect("to_sparse", &status)
	v := tensor(t)
	defer using(v)()
	switch layout {
	case 1:
		return result(op.ToSparse(v, int(dims)))
	case 2:
		return result(op.ToSparseCSR(v))
	}
	if !v.IsSparse() {
		return result(v.Alias(true))
	}
	return result(op.ToDense(v))
}

// SparseCoalesce returns a COO tensor with its entries in order, those with equal indices summed.
//
//plait:waits
func SparseCoalesce(t Tensor) (status Tensor) {
	defer protect("coalesce", &status)
	v := tensor(t)
	defer using(v)()
	return result(op.Coalesce(v))
}

// SparseMask returns the elements of t at the entries of a sparse tensor.
//
//plait:waits
func SparseMask(t Tensor, mask Tensor) (status Tensor) {
	defer protect("sparse_mask", &status)
	v, m := tensor(t), tensor(mask)
	defer using(v, m)()
	return result(op.SparseMask(v, m))
}

// SparsePart returns what a sparse tensor is made of: 0 for the indices, 1 for the values, 2 for where the rows begin, 3 for the columns.
func SparsePart(t Tensor, which int64) (status Tensor) {
	defer protect("sparse tensor", &status)
	v := tensor(t)
	switch which {
	case 0:
		return result(op.SparseIndices(v))
	case 1:
		return result(op.SparseValues(v))
	}
	crow, col := op.SparseRows(v)
	if which == 2 {
		col.Release()
		return result(crow)
	}
	crow.Release()
	return result(col)
}

// SparseForm writes a sparse tensor's layout, 1 for COO and 2 for CSR, its numbers of sparse and dense dimensions and of entries, and
// whether it is coalesced. It returns 0 for any other tensor, else 1.
func SparseForm(t Tensor, out IntsOut) (status Status) {
	defer protect("sparse tensor", &status)
	v := tensor(t)
	if err := v.Present("sparse tensor"); err != nil {
		return failure(err)
	}
	f, ok := op.SparseFormOf(v)
	if !ok {
		return 0
	}
	to := handle.Slice[int64](out, 5)
	to[0], to[1], to[2], to[3], to[4] = int64(f.Layout)+1, int64(f.SparseDim), int64(f.Dense), int64(f.Entries), int64(truth(f.Coalesced))
	return 1
}
