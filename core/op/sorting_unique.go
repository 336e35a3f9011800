package op

import (
	mathbits "math/bits"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// UniqueOptions say which of its further results [Unique] computes. Others have no elements.
type UniqueOptions struct{ Inverse, Counts bool }

// Unique returns the different elements of x in ascending order, for each element of x the index of its equal among them,
// and how often each comes, both as int64. With a dimension, it compares the slices along it, ordered by their first
// difference, instead of elements. A NaN equals nothing. It waits for the result, whose size depends on the values.
func Unique(x *core.Tensor, dim *int, o UniqueOptions) (values, inverse, counts *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn3(parts, "unique", x, dim, o)
	}
	return unique("unique", x, dim, o, false)
}

// UniqueConsecutive is [Unique] without sorting: only neighbours are compared.
func UniqueConsecutive(x *core.Tensor, dim *int, o UniqueOptions) (values, inverse, counts *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn3(parts, "unique_consecutive", x, dim, o)
	}
	return unique("unique_consecutive", x, dim, o, true)
}

func unique(name string, x *core.Tensor, dim *int, o UniqueOptions, consecutive bool) (values, inverse, counts *core.Tensor) {
	op := begin(name, &x)
	d := 0
	if dim != nil {
		if d = op.dim(*dim, x); op.err == nil && x.Dim() == 0 {
			dim = nil
		}
	}
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	out := core.RunScope(func() []*core.Tensor {
		x := x.Detach()
		in, kernel, n, shape := x, contract.Unique, x.Numel(), x.Shape()
		result := x.DType()
		if dim != nil {
			n, result, kernel = x.Size(d), core.Int64, contract.UniqueRows
			in, shape = Reshape(Transpose(x, 0, d), n, x.Numel()/max(n, 1)), []int{n}
		}
		in = op.own(Contiguous(in))
		least, width := op.keyRange(in, consecutive || dim != nil)
		v, total := op.temp(result, n), op.temp(core.Int64)
		var i, c *core.Tensor
		if o.Inverse {
			i = op.out(core.Int64, shape)
		}
		if o.Counts {
			c = op.temp(core.Int64, n)
		}
		if op.err != nil {
			return []*core.Tensor{op.fail(), op.fail(), op.fail()}
		}
		call := op.call(kernel).Out(v).Out(i).Out(c).Out(total).In(in).Bool(consecutive)
		if kernel == contract.Unique {
			call.Int(least, width)
		}
		if !consecutive {
			sortingWork(call)
		}
		op.launch(call)
		k, err := total.Int()
		if op.check(err); op.err != nil {
			return []*core.Tensor{op.fail(), op.fail(), op.fail()}
		}
		found := Narrow(v, 0, 0, int(k))
		if dim != nil {
			found = IndexSelect(x, d, found)
		} else {
			found = allocated(found, n)
		}
		if o.Counts {
			c = allocated(Narrow(c, 0, 0, int(k)), n)
		} else {
			c = zerosFor(x, core.Int64, []int{0})
		}
		if !o.Inverse {
			i = zerosFor(x, core.Int64, []int{0})
		}
		op.end()
		return []*core.Tensor{found, i, c}
	})
	return out[0], out[1], out[2]
}

// allocated returns the first elements of n that were allocated, in memory of their own unless these are most of them.
func allocated(x *core.Tensor, n int) *core.Tensor {
	if 2*x.Numel() > n {
		return x
	}
	return Clone(x)
}

// manyKeys is the number of integers from which it pays to look for their range before a GPU sorts them: each pass over 8 bits that it is spared
// takes longer than the wait.
const manyKeys = 1 << 18

// keyRange returns the attributes of [contract.Range] for integers that a GPU is to sort, if these are many. It waits for them.
func (op *opContext) keyRange(x *core.Tensor, unsorted bool) (least, width int64) {
	if op.err != nil || unsorted || x.DType() != core.Int64 || x.Numel() < manyKeys || x.Device().HostAccessible() {
		return 0, 0
	}
	ends, err := core.Values[int64](extremes(x))
	if op.check(err); op.err != nil {
		return 0, 0
	}
	if n := mathbits.Len64(uint64(ends[1]) - uint64(ends[0])); n <= 32 {
		return ends[0], int64(max(n, 1))
	}
	return 0, 0
}
