package contract

import "github.com/plait-ml/plait/core"

// Indices are int64. Sorts are stable, and NaN is larger than any number.
var (
	// Sort writes the sorted elements along a dimension, and their indices in x.
	Sort = declare(Contract{Name: "sort", Outs: "values indices", Ins: "x", Ints: "dim descending"})
	// ArgSort writes the indices only.
	ArgSort = declare(Contract{Name: "argsort", Outs: "indices", Ins: "x", Ints: "dim descending"})
	// TopK writes the k largest or smallest elements, in order. Of equal elements, the ones with lower indices come
	// first.
	TopK = declare(Contract{Name: "topk", Outs: "values indices", Ins: "x", Ints: "dim k largest"})
	// KthValue writes the k-th smallest element, counted from 1. The dimension is absent in the results, or of size 1;
	// so it is below.
	KthValue = declare(Contract{Name: "kthvalue", Outs: "values indices", Ins: "x", Ints: "dim k"})
	// Median writes the lower median, or the first NaN if there is one. NanMedian ignores NaNs.
	Median    = declare(Contract{Name: "median", Outs: "values indices", Ins: "x", Ints: "dim k"})
	NanMedian = declare(Contract{Name: "nanmedian", Outs: "values indices", Ins: "x", Ints: "dim k"})
	// Mode writes the most frequent element, and the index of its last occurrence. Of equally frequent elements it
	// takes the smallest.
	Mode = declare(Contract{Name: "mode", Outs: "values indices", Ins: "x", Ints: "dim k"})

	// SearchSorted writes, for each value, the number of smaller elements in its sorted sequence. All values share one
	// sequence, or each row of values has its own. sequence and values have one dtype. sorter holds indices that sort
	// the sequences. All operands are contiguous.
	SearchSorted = declare(Contract{Name: "searchsorted", Outs: "y", Ins: "sequence values sorter?", Ints: "right"})
	// BinCount writes, for each index, the number of int64 elements equal to it, or the sum of their weights in
	// float64.
	BinCount = declare(Contract{Name: "bincount", Outs: "y", Ins: "x weights?"})
	// HistC writes a histogram of x with bins of equal width. The last bin includes its upper end.
	HistC = declare(Contract{Name: "histc", Outs: "y", Ins: "x", Floats: "low high"})
	// Unique writes the distinct values of n elements. Each NaN is distinct. inverse maps an element to its value's
	// index, counts has the occurrences of each value, and total has the number of values. All outputs except total
	// have room for n. All operands are contiguous. With bits, at most 32, x is int64 and its elements are least to
	// least + 2^bits - 1.
	Unique = declare(Contract{Name: "unique", Outs: "values inverse? counts? total", Ins: "x", Ints: "consecutive least bits"})
	// UniqueRows does the same for rows. first has the index of each distinct row's first occurrence.
	UniqueRows = declare(Contract{Name: "unique_rows", Outs: "first inverse? counts? total", Ins: "x", Ints: "consecutive"})
)

// SortAttrs are the attributes of [Sort] and [ArgSort].
type SortAttrs struct {
	Dim        int
	Descending bool
}

// TopKAttrs are the attributes of [TopK].
type TopKAttrs struct {
	Dim, K  int
	Largest bool
}

// PickAttrs are the attributes of [KthValue], [Median], [NanMedian] and [Mode]. Only KthValue reads K.
type PickAttrs struct{ Dim, K int }

// Right reports whether a call of [SearchSorted] also counts elements equal to the value.
func Right(c *core.Call) bool { return c.Ints[0] != 0 }

// Consecutive reports whether a call of [Unique] or [UniqueRows] compares neighbours only, and so does not sort.
func Consecutive(c *core.Call) bool { return c.Ints[0] != 0 }

// Range returns, of a call of [Unique], the least integer that its elements may be, and the number of bits that they may exceed it by, or 0 if
// that is not known.
func Range(c *core.Call) (least int64, bits int) { return c.Ints[1], int(c.Ints[2]) }

// HistCAttrs are the attributes of [HistC].
type HistCAttrs struct{ Low, High float64 }
