package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// searchWork is how much more a search costs than going through an operand once.
const searchWork = 16

// SearchOptions are the options of searching sorted sequences.
type SearchOptions struct {
	// Int32 makes the result int32 instead of int64.
	Int32 bool
	// Right finds the place after equal elements instead of the one before them.
	Right bool
	// Sorter holds the int64 indices that sort the sequences, which then need not be sorted themselves.
	Sorter *core.Tensor
}

// SearchSorted returns, for each value, where it belongs in a sorted sequence: the number of elements that are smaller.
// The sequence is a vector, or one lies in the last dimension for each row of values, and the other dimensions agree. A
// NaN counts as the largest.
func SearchSorted(sequence, values *core.Tensor, o SearchOptions) *core.Tensor {
	if parts := distributed(sequence, values, o.Sorter); parts != nil {
		return handOn(parts, "searchsorted", sequence, values, o)
	}
	return search("searchsorted", sequence, values, o)
}

// Bucketize returns, for each element of x, in which of the buckets between the sorted boundaries it is: the number of
// boundaries that are smaller.
func Bucketize(x, boundaries *core.Tensor, o SearchOptions) *core.Tensor {
	if parts := distributed(x, boundaries, o.Sorter); parts != nil {
		return handOn(parts, "bucketize", x, boundaries, o)
	}
	if boundaries.Err() == nil && !boundaries.IsNumber() && boundaries.Dim() != 1 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "bucketize", "boundaries must be a vector, got shape %v", boundaries.Shape()))
	}
	o.Sorter = nil
	return search("bucketize", boundaries, x, o)
}

func search(name string, sequence, values *core.Tensor, o SearchOptions) *core.Tensor {
	op := begin(name, &sequence, optional(&values), optional(&o.Sorter))
	if op.err != nil {
		return op.fail()
	}
	last := sequence.Dim() - 1
	switch {
	case values == nil:
		op.failf(core.TypeError, "want values, got a nil tensor")
	case last < 0:
		op.failf(core.ShapeError, "the sequence must have a dimension, got a 0-d tensor")
	case last > 0 && (values.Dim() != last+1 || !slices.Equal(sequence.Shape()[:last], values.Shape()[:last])):
		op.failf(core.ShapeError, "the sequences of shape %v and values of shape %v differ in the other dimensions", sequence.Shape(), values.Shape())
	case o.Sorter != nil && o.Sorter.DType() != core.Int64:
		op.failf(core.DTypeError, "sorter must be int64, got %v", o.Sorter.DType())
	case o.Sorter != nil && !slices.Equal(o.Sorter.Shape(), sequence.Shape()):
		op.failf(core.ShapeError, "sorter has shape %v, want the sequence's %v", o.Sorter.Shape(), sequence.Shape())
	}
	if op.err != nil {
		return op.fail()
	}
	d := core.ResultType(sequence, values)
	result := core.Int64
	if o.Int32 {
		result = core.Int32
	}
	return op.compose(func() *core.Tensor {
		v := values.Detach()
		if values.IsNumber() {
			v = filled(name, sequence, nil, d, values, TensorOptions{})
		}
		v = op.own(Contiguous(castTo(v, d)))
		s := op.own(Contiguous(castTo(sequence.Detach(), d)))
		var sorter *core.Tensor
		if o.Sorter != nil {
			sorter = op.own(Contiguous(o.Sorter))
		}
		out := op.out(result, v.Shape())
		if op.err != nil {
			return op.fail()
		}
		c := op.call(contract.SearchSorted).Out(out).In(s).In(v).In(sorter).Bool(o.Right)
		c.Work *= searchWork
		op.launch(c)
		return op.done(out)
	})
}
