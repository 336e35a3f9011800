package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// along returns the selection of a vector of indices, or one index, in dimension dim of x.
func along(name string, x *core.Tensor, dim int, index *core.Tensor, wrap bool) (*selection, error) {
	op := begin(name).with(x, index)
	op.given(x, index)
	dim = op.dim(dim, x)
	if op.err == nil && (x.IsNumber() || x.Dim() == 0) {
		op.failf(core.ShapeError, "cannot index a 0-d tensor")
	}
	if op.err == nil && index.Dim() > 1 {
		op.failf(core.ShapeError, "indices must be a vector, got shape %v", index.Shape())
	}
	if op.err != nil {
		return nil, op.err
	}
	if index.Dim() == 0 {
		index = Reshape(index, 1)
	}
	return &selection{name: name, dims: []int{dim}, index: []*core.Tensor{index}, at: dim, wrap: wrap}, nil
}

// IndexSelect returns the parts of x at the indices, a vector of int64 or int32, of dimension dim. An index must lie in
// [0, size).
func IndexSelect(x *core.Tensor, dim int, index *core.Tensor) *core.Tensor {
	if parts := distributed(x, index); parts != nil {
		return handOn(parts, "index_select", x, dim, index)
	}
	if scalar(x) && index.Err() == nil {
		if index.Numel() != 1 {
			return core.ErrorTensor(core.Errorf(core.ShapeError, "index_select", "got %d indices for a 0-d tensor, want one", index.Numel()))
		}
		return compose("index_select", func() *core.Tensor { return Reshape(IndexSelect(atLeast(x, 1), dim, index)) })
	}
	s, err := along("index_select", x, dim, index, false)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return s.read(x)
}

// scalar reports whether x is a tensor of no dimensions, which counts as a vector of one element.
func scalar(x *core.Tensor) bool { return x.Err() == nil && !x.IsNumber() && x.Dim() == 0 }

// IndexAdd returns x with the parts of src in dimension dim added to those that the indices name. src has x's shape but
// for dimension dim, where it has a part for each index. The order of the additions, and so the result, does not depend
// on the number of threads.
func IndexAdd(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_add", x, dim, index, src, 1.0)
	}
	return indexWrite("index_add", x, dim, index, src, contract.ScatterAdd, false)
}

// IndexAddInPlace changes x as [IndexAdd] does and returns it.
func IndexAddInPlace(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_add_", x, dim, index, src, 1.0)
	}
	return indexWrite("index_add", x, dim, index, src, contract.ScatterAdd, true)
}

// IndexAddScaled is [IndexAdd] of alpha*src.
func IndexAddScaled(x *core.Tensor, dim int, index, src *core.Tensor, alpha float64) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_add", x, dim, index, src, alpha)
	}
	return compose("index_add", func() *core.Tensor { return IndexAdd(x, dim, index, scaled(src, alpha)) })
}

// IndexAddScaledInPlace changes x as [IndexAddScaled] does and returns it.
func IndexAddScaledInPlace(x *core.Tensor, dim int, index, src *core.Tensor, alpha float64) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_add_", x, dim, index, src, alpha)
	}
	s := scaled(src, alpha)
	if s != src {
		defer s.Release()
	}
	return IndexAddInPlace(x, dim, index, s)
}

// scaled returns alpha*t in t's dtype.
func scaled(t *core.Tensor, alpha float64) *core.Tensor {
	if alpha == 1 || t.Err() != nil {
		return t
	}
	if t.DType().Differentiable() {
		return Mul(t, core.Num(alpha))
	}
	if alpha != math.Trunc(alpha) {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "index_add", "alpha must be a whole number for %v, got %v", t.DType(), alpha))
	}
	return To(Mul(t, core.IntNum(int64(alpha))), t.DType())
}

// IndexCopy returns x with the parts in dimension dim that the indices name replaced by those of src. Of several with
// one index the last stays.
func IndexCopy(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_copy", x, dim, index, src)
	}
	return indexWrite("index_copy", x, dim, index, src, contract.ScatterAssign, false)
}

// IndexCopyInPlace changes x as [IndexCopy] does and returns it.
func IndexCopyInPlace(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_copy_", x, dim, index, src)
	}
	return indexWrite("index_copy", x, dim, index, src, contract.ScatterAssign, true)
}

func indexWrite(name string, x *core.Tensor, dim int, index, src *core.Tensor, mode contract.ScatterMode, inPlace bool) *core.Tensor {
	var op opContext
	if inPlace { // autocast leaves the inputs as they are
		op = begin(name).with(x, index, src)
		op.given(x, index, src)
	} else {
		op = begin(name, &x, &index, &src)
	}
	if op.err == nil && src.IsNumber() {
		op.failf(core.TypeError, "the source must be a tensor")
	}
	if op.err != nil {
		return op.fail()
	}
	if scalar(x) && src.Dim() <= 1 {
		v := atLeast(x, 1)
		defer v.Release()
		r := indexWrite(name, v, dim, index, atLeast(src, 1), mode, inPlace)
		if r.Err() != nil {
			return r
		}
		if inPlace {
			return x
		}
		defer r.Release()
		return Reshape(r)
	}
	s, err := along(name, x, dim, index, false)
	if err != nil {
		return core.ErrorTensor(err)
	}
	want := slices.Clone(x.Shape())
	want[s.dims[0]] = s.index[0].Numel()
	if !slices.Equal(src.Shape(), want) {
		op.failf(core.ShapeError, "the source has shape %v, want %v for %d indices of dimension %d of shape %v", src.Shape(), want,
			s.index[0].Numel(), s.dims[0], x.Shape())
		return op.fail()
	}
	if inPlace {
		return s.writeInPlace(x, src, mode)
	}
	return op.passOn(s.write(x, src, mode))
}

// IndexFill returns x with the parts in dimension dim that the indices name set to value, a number or a 0-d tensor, which
// is converted to x's dtype. Negative indices count from the end.
func IndexFill(x *core.Tensor, dim int, index, value *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, value); parts != nil {
		return handOn(parts, "index_fill", x, dim, index, value)
	}
	if scalar(x) {
		return compose("index_fill", func() *core.Tensor { return Reshape(IndexFill(atLeast(x, 1), dim, index, value)) })
	}
	if narrower(value, x) {
		return compose("index_fill", func() *core.Tensor { return IndexFill(x, dim, index, castTo(value, x.DType())) })
	}
	s, err := filling(x, dim, index, value)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return s.write(x, value, contract.ScatterAssign)
}

// IndexFillInPlace changes x as [IndexFill] does and returns it.
func IndexFillInPlace(x *core.Tensor, dim int, index, value *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, value); parts != nil {
		return handOn(parts, "index_fill_", x, dim, index, value)
	}
	if scalar(x) {
		v := atLeast(x, 1)
		defer v.Release()
		if r := IndexFillInPlace(v, dim, index, value); r.Err() != nil {
			return r
		}
		return x
	}
	if narrower(value, x) {
		v := castTo(value, x.DType())
		defer v.Release()
		return IndexFillInPlace(x, dim, index, v)
	}
	s, err := filling(x, dim, index, value)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return s.writeInPlace(x, value, contract.ScatterAssign)
}

// narrower reports whether value is a 0-d tensor of another dtype than x's, of a kind of numbers that x's holds.
func narrower(value, x *core.Tensor) bool {
	return value != nil && x != nil && value.Err() == nil && x.Err() == nil && !value.IsNumber() && value.Dim() == 0 &&
		value.DType() != x.DType() && class(value.DType()) <= class(x.DType())
}

func filling(x *core.Tensor, dim int, index, value *core.Tensor) (*selection, error) {
	if err := value.Usable("index_fill"); err != nil {
		return nil, err
	}
	if value.Dim() > 0 {
		return nil, core.Errorf(core.ShapeError, "index_fill", "the value has shape %v, want a number or a 0-d tensor", value.Shape())
	}
	if x != nil && x.Err() == nil {
		if err := holds("index_fill", x.DType(), value); err != nil {
			return nil, err
		}
	}
	return along("index_fill", x, dim, index, true)
}

// Take returns the elements of x, taken as flat, at the indices, an int64 or int32 tensor of any shape. Negative indices
// count from the end.
func Take(x, index *core.Tensor) *core.Tensor {
	if parts := distributed(x, index); parts != nil {
		return handOn(parts, "take", x, index)
	}
	op := begin("take", &x, &index)
	return op.compose(func() *core.Tensor {
		s := selection{name: "take", dims: []int{0}, index: []*core.Tensor{index}, wrap: true}
		return s.read(Ravel(x))
	})
}

// PutInPlace writes src, which has as many elements as there are indices, to the elements of x, taken as flat, at the
// indices, or adds it if accumulate, and returns x. Negative indices count from the end.
func PutInPlace(x, index, src *core.Tensor, accumulate bool) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "put_", x, index, src, accumulate)
	}
	op := begin("put_", &x, &index, &src)
	if op.err == nil && (src.IsNumber() || src.Numel() != index.Numel()) {
		op.failf(core.ShapeError, "got a source of shape %v for indices of shape %v, want as many elements", src.Shape(), index.Shape())
	}
	op.inPlace(x)
	if op.err != nil {
		return op.fail()
	}
	s := selection{name: "put", dims: []int{0}, index: []*core.Tensor{index}, wrap: true}
	mode := contract.ScatterAssign
	if accumulate {
		mode = contract.ScatterAdd
	}
	flat := Ravel(x)
	defer flat.Release()
	values := Reshape(src, index.Shape()...)
	defer values.Release()
	r := s.writeInPlace(flat, values, mode)
	if r.Err() == nil && flat.Storage() != x.Storage() { // x has no flat view
		r = CopyInPlace(x, ReshapeAs(flat, x))
	}
	if r.Err() != nil {
		return r
	}
	return x
}
