package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

var (
	uniqueKernel     = core.Kernel("unique")
	uniqueRowsKernel = core.Kernel("unique_rows")
	nonzeroKernel    = core.Kernel("nonzero")
)

// Unique returns the different elements of x in ascending order, for each element of x the index of its equal among them,
// and how often each comes, both as int64. With a dimension, it compares the slices along it, ordered by their first
// difference, instead of elements. A NaN equals nothing. It waits for the result, whose size depends on the values.
func Unique(x *core.Tensor, dim *int) (values, inverse, counts *core.Tensor) {
	return unique("unique", x, dim, false)
}

// UniqueConsecutive is [Unique] without sorting: only neighbours are compared.
func UniqueConsecutive(x *core.Tensor, dim *int) (values, inverse, counts *core.Tensor) {
	return unique("unique_consecutive", x, dim, true)
}

func unique(name string, x *core.Tensor, dim *int, consecutive bool) (values, inverse, counts *core.Tensor) {
	a := beginTensor(name, x)
	d := 0
	if dim != nil {
		if d = a.dim(*dim, x); a.err == nil && x.Dim() == 0 {
			dim = nil
		}
	}
	if a.err != nil {
		return a.fail(), a.fail(), a.fail()
	}
	out := core.RunScope(func() []*core.Tensor {
		x := x.Detach()
		in, kernel, n, shape := x, uniqueKernel, x.Numel(), x.Shape()
		result := x.DType()
		if dim != nil {
			n, result, kernel = x.Size(d), core.Int64, uniqueRowsKernel
			in, shape = Reshape(Transpose(x, 0, d), n, x.Numel()/max(n, 1)), []int{n}
		}
		in = a.own(Contiguous(in))
		v, i, c, total := a.temp(result, n), a.out(core.Int64, shape), a.temp(core.Int64, n), a.temp(core.Int64)
		if a.err != nil {
			return []*core.Tensor{a.fail(), a.fail(), a.fail()}
		}
		a.launch(sortingWork(a.call(kernel).Out(v).Out(i).Out(c).Out(total).In(in).Bool(consecutive)))
		k, err := total.Int()
		if a.check(err); a.err != nil {
			return []*core.Tensor{a.fail(), a.fail(), a.fail()}
		}
		found := Narrow(v, 0, 0, int(k))
		if dim != nil {
			found = IndexSelect(x, d, found)
		} else {
			found = Clone(found)
		}
		counts := Clone(Narrow(c, 0, 0, int(k)))
		a.end()
		return []*core.Tensor{found, i, counts}
	})
	return out[0], out[1], out[2]
}

// NonZero returns the coordinates of the elements of x that are not zero, in row-major order: an int64 tensor of shape
// [number of them, dimensions of x]. It waits for that number.
func NonZero(x *core.Tensor) *core.Tensor {
	a := beginTensor("nonzero", x)
	if a.err != nil {
		return a.fail()
	}
	return compose("nonzero", func() *core.Tensor {
		in := a.own(Contiguous(x.Detach()))
		n, err := CountNonzero(in, nil).Int()
		a.check(err)
		out := a.out(core.Int64, []int{int(n), x.Dim()})
		if a.err != nil {
			return a.fail()
		}
		a.launch(a.call(nonzeroKernel).Out(out).In(in))
		return a.done(out)
	})
}

// SearchOptions are the options of searching sorted sequences.
type SearchOptions struct {
	// Int32 makes the result int32 instead of int64.
	Int32 bool
	// Right finds the place after equal elements instead of the one before them.
	Right bool
	// Sorter holds the int64 indices that sort the sequences, which then need not be sorted themselves.
	Sorter *core.Tensor
}

var searchKernel = core.Kernel("searchsorted")

// SearchSorted returns, for each value, where it belongs in a sorted sequence: the number of elements that are smaller.
// The sequence is a vector, or one lies in the last dimension for each row of values, and the other dimensions agree. A
// NaN counts as the largest.
func SearchSorted(sequence, values *core.Tensor, o SearchOptions) *core.Tensor {
	return search("searchsorted", sequence, values, o)
}

// Bucketize returns, for each element of x, in which of the buckets between the sorted boundaries it is: the number of
// boundaries that are smaller.
func Bucketize(x, boundaries *core.Tensor, o SearchOptions) *core.Tensor {
	if boundaries.Err() == nil && !boundaries.IsNumber() && boundaries.Dim() != 1 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "bucketize", "boundaries must be a vector, got shape %v", boundaries.Shape()))
	}
	o.Sorter = nil
	return search("bucketize", boundaries, x, o)
}

func search(name string, sequence, values *core.Tensor, o SearchOptions) *core.Tensor {
	a := beginTensor(name, sequence, values, o.Sorter)
	if a.err != nil {
		return a.fail()
	}
	last := sequence.Dim() - 1
	switch {
	case values == nil:
		a.failf(core.TypeError, "want values, got a nil tensor")
	case last < 0:
		a.failf(core.ShapeError, "the sequence must have a dimension, got a 0-d tensor")
	case last > 0 && (values.Dim() != last+1 || !slices.Equal(sequence.Shape()[:last], values.Shape()[:last])):
		a.failf(core.ShapeError, "the sequences of shape %v and values of shape %v differ in the other dimensions", sequence.Shape(), values.Shape())
	case o.Sorter != nil && o.Sorter.DType() != core.Int64:
		a.failf(core.DTypeError, "sorter must be int64, got %v", o.Sorter.DType())
	case o.Sorter != nil && !slices.Equal(o.Sorter.Shape(), sequence.Shape()):
		a.failf(core.ShapeError, "sorter has shape %v, want the sequence's %v", o.Sorter.Shape(), sequence.Shape())
	}
	if a.err != nil {
		return a.fail()
	}
	d := core.ResultType(sequence, values)
	result := core.Int64
	if o.Int32 {
		result = core.Int32
	}
	return compose(name, func() *core.Tensor {
		v := values.Detach()
		if values.IsNumber() {
			v = filled(name, sequence, nil, d, values, TensorOptions{})
		}
		v = a.own(Contiguous(castTo(v, d)))
		s := a.own(Contiguous(castTo(sequence.Detach(), d)))
		var sorter *core.Tensor
		if o.Sorter != nil {
			sorter = a.own(Contiguous(o.Sorter))
		}
		out := a.out(result, v.Shape())
		if a.err != nil {
			return a.fail()
		}
		a.launch(a.call(searchKernel).Out(out).In(s).In(v).In(sorter).Bool(o.Right))
		return a.done(out)
	})
}
