package contract

import "github.com/plait-ml/plait/core"

// Indices are int64. A NaN counts as the largest, and the order of equal elements stays.
var (
	// Sort writes the elements along a dimension in order, and where they were.
	Sort = declare(Contract{Name: "sort", Outs: "values indices", Ins: "x", Ints: "dim descending"})
	// ArgSort writes only where they were.
	ArgSort = declare(Contract{Name: "argsort", Outs: "indices", Ins: "x", Ints: "dim descending"})
	// TopK writes the first k of them; of equal elements, those that come first.
	TopK = declare(Contract{Name: "topk", Outs: "values indices", Ins: "x", Ints: "dim k largest"})
	// KthValue writes the k-th smallest, counted from 1. The dimension is left out, or of size 1, as for those that follow.
	KthValue = declare(Contract{Name: "kthvalue", Outs: "values indices", Ins: "x", Ints: "dim k"})
	// Median writes the lower of the middle ones, the first NaN if there is one; NanMedian, the same of those that are not NaN.
	Median    = declare(Contract{Name: "median", Outs: "values indices", Ins: "x", Ints: "dim k"})
	NanMedian = declare(Contract{Name: "nanmedian", Outs: "values indices", Ins: "x", Ints: "dim k"})
	// Mode writes the element that comes most often, the smallest of those, and where its last is.
	Mode = declare(Contract{Name: "mode", Outs: "values indices", Ins: "x", Ints: "dim k"})

	// SearchSorted writes for each value how many elements of its sorted sequence are smaller. There is one sequence, or one for
	// each row of values, of one dtype; sorter is the indices that sort the sequences. All are contiguous.
	SearchSorted = declare(Contract{Name: "searchsorted", Outs: "y", Ins: "sequence values sorter?", Ints: "right"})
	// BinCount writes for each index how many elements, int64, are equal to it, or the sum of their weights, float64.
	BinCount = declare(Contract{Name: "bincount", Outs: "y", Ins: "x weights?"})
	// HistC writes how many elements of x are in each of equal parts of a range; the last part includes its end.
	HistC = declare(Contract{Name: "histc", Outs: "y", Ins: "x", Floats: "low high"})
	// Unique writes what is left of n elements when equal ones, of which NaN is none, are counted once: inverse says, for each,
	// which it is, and total how many there are. All operands but total have room for n, and are contiguous.
	Unique = declare(Contract{Name: "unique", Outs: "values inverse counts total", Ins: "x", Ints: "consecutive"})
	// UniqueRows does that for rows, and writes for each the index of its first.
	UniqueRows = declare(Contract{Name: "unique_rows", Outs: "first inverse counts total", Ins: "x", Ints: "consecutive"})
)

// SortAttrs are the attributes of [Sort] and [ArgSort].
type SortAttrs struct {
	Dim        int
	Descending bool
}

// AddTo adds the attributes to a call and returns it.
func (a SortAttrs) AddTo(c *core.Call) *core.Call { return c.Int(int64(a.Dim), Flag(a.Descending)) }

// SortOf reads the attributes of a call.
func SortOf(c *core.Call) SortAttrs { return SortAttrs{int(c.Ints[0]), c.Ints[1] != 0} }

// TopKAttrs are the attributes of [TopK].
type TopKAttrs struct {
	Dim, K  int
	Largest bool
}

// AddTo adds the attributes to a call and returns it.
func (a TopKAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Dim), int64(a.K), Flag(a.Largest))
}

// TopKOf reads the attributes of a call.
func TopKOf(c *core.Call) TopKAttrs { return TopKAttrs{int(c.Ints[0]), int(c.Ints[1]), c.Ints[2] != 0} }

// PickAttrs are the attributes of [KthValue], [Median], [NanMedian] and [Mode]; the last three do not look at K.
type PickAttrs struct{ Dim, K int }

// AddTo adds the attributes to a call and returns it.
func (a PickAttrs) AddTo(c *core.Call) *core.Call { return c.Int(int64(a.Dim), int64(a.K)) }

// PickOf reads the attributes of a call.
func PickOf(c *core.Call) PickAttrs { return PickAttrs{int(c.Ints[0]), int(c.Ints[1])} }

// Right returns the attribute of [SearchSorted]: elements that equal the value count too.
func Right(c *core.Call) bool { return c.Ints[0] != 0 }

// Consecutive returns the attribute of [Unique] and [UniqueRows]: only neighbours are compared, nothing is sorted.
func Consecutive(c *core.Call) bool { return c.Ints[0] != 0 }

// HistCAttrs are the attributes of [HistC].
type HistCAttrs struct{ Low, High float64 }

// AddTo adds the attributes to a call and returns it.
func (a HistCAttrs) AddTo(c *core.Call) *core.Call { return c.Float(a.Low, a.High) }

// HistCOf reads the attributes of a call.
func HistCOf(c *core.Call) HistCAttrs { return HistCAttrs{c.Floats[0], c.Floats[1]} }
