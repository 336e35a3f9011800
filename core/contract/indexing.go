package contract

import "github.com/plait-ml/plait/core"

var (
	// Gather writes y[.., j, ..] = x[.., index[.., j, ..], ..] along a dimension.
	Gather = declare(Contract{Name: "gather", Outs: "y", Ins: "x index", Ints: "dim", Pairs: core.Shared})
	// Scatter combines y[.., index[.., j, ..], ..] with src[.., j, ..] along a dimension. src may be a number.
	Scatter = declare(Contract{Name: "scatter", Outs: "y", Ins: "index src", Ints: "dim mode", Pairs: core.Shared})
	// Index writes y[b.., r..] = x[indices[0][b..], indices[1][b..], .., r..]. The indices are tensors of one shape,
	// for the first dimensions of x. dims are the numbers that error messages give these dimensions.
	Index = declare(Contract{Name: "index", Outs: "y", Ins: "x indices...", Ints: "wrap dims...", Pairs: core.Leading})
	// IndexPut combines y[indices[0][b..], indices[1][b..], .., r..] with src[b.., r..], which may be a number.
	IndexPut = declare(Contract{Name: "index_put", Outs: "y", Ins: "src indices...", Ints: "wrap mode dims...", Pairs: core.Leading})
	// OneHot writes y[b.., k] = 1 where index[b..] == k, and 0 elsewhere. y is contiguous.
	OneHot = declare(Contract{Name: "one_hot", Outs: "y", Ins: "index"})
	// BagIndices writes, for each sample, the bag that it is in: bag b has the samples from offsets[b], which are int64, begin with 0 and do
	// not decrease, up to the next bag's. Both operands are contiguous.
	BagIndices = declare(Contract{Name: "bag_indices", Outs: "bags", Ins: "offsets"})
	// BagMax writes the largest elements of the rows of weight [n, features] in each bag of an int64 vector of indices, and the numbers of
	// these rows, int64: 0 and -1 for a bag without rows. Bags begin at the int64 offsets, or all have size indices. The row padding counts
	// for nothing, unless it is negative. A bag that begins with NaN is NaN, others have none. Operands are contiguous.
	BagMax = declare(Contract{Name: "bag_max", Outs: "y rows?", Ins: "weight index offsets?", Ints: "size padding"})
	// EmbeddingBackward writes dweight[v, :], the sum of dy[b.., :] over all b with index[b..] == v.
	EmbeddingBackward = declare(Contract{Name: "embedding_backward", Outs: "dweight", Ins: "dy index", Ints: "padding by_frequency add"})
	// MaskCount writes the number of true elements of a mask as an int64.
	MaskCount = declare(Contract{Name: "mask_count", Outs: "count", Ins: "mask"})
	// MaskPositions writes the indices of the true elements of a mask, one per column: int64 of shape [dims, count].
	MaskPositions = declare(Contract{Name: "mask_positions", Outs: "positions", Ins: "mask"})
	// MaskedSelect writes the elements of x where mask is true to y, in row-major order. y is contiguous.
	MaskedSelect = declare(Contract{Name: "masked_select", Outs: "y", Ins: "x mask", Pairs: core.Shared})
	// MaskedScatter overwrites the elements of y where mask is true by the elements of src, in order. src is
	// contiguous.
	MaskedScatter = declare(Contract{Name: "masked_scatter", Outs: "y", Ins: "mask src", Pairs: core.Shared})
	// Nonzero writes the indices of the nonzero elements of x, one per row: int64 of shape [count, dims]. x is
	// contiguous.
	Nonzero = declare(Contract{Name: "nonzero", Outs: "positions", Ins: "x"})
)

// BagOffsetError returns the error of a call whose offset at a position is wrong, for n indices.
func BagOffsetError(c *core.Call, position, n int) error {
	return core.Errorf(core.ValueError, c.Op, "the offset at position %d is wrong: offsets begin with 0, do not decrease and do not pass the %d indices",
		position, n)
}

// BagMaxAttrs are the attributes of [BagMax].
type BagMaxAttrs struct {
	Size    int // of all bags, if there are no offsets
	Padding int // the row that counts for nothing; negative for none
}

// A ScatterMode says how a scattered value is combined with the element at its destination.
type ScatterMode int64

// The modes of [Scatter] and [IndexPut].
const (
	ScatterAssign ScatterMode = iota // C: PLAITK_ASSIGN
	ScatterAdd                       // C: PLAITK_ADD
	ScatterMul                       // C: PLAITK_MUL
	ScatterMax                       // C: PLAITK_MAX
	ScatterMin                       // C: PLAITK_MIN
)

// ScatterAttrs are the attributes of [Scatter].
type ScatterAttrs struct {
	Dim  int
	Mode ScatterMode
}

// SetIndex adds the attributes of [Index] to a call and returns it.
func SetIndex(c *core.Call, wrap bool, dims []int) *core.Call { return c.Int(Flag(wrap)).Dims(dims) }

// IndexAttrs are the attributes of [Index] as kernels read them.
type IndexAttrs struct {
	Wrap bool    // negative indices count from the end
	Dims []int64 // numbers of the indexed dimensions, for error messages
}

// IndexOf reads the attributes of a call.
func IndexOf(c *core.Call) IndexAttrs { return IndexAttrs{c.Ints[0] != 0, c.Ints[1:]} }

// SetIndexPut adds the attributes of [IndexPut] to a call and returns it.
func SetIndexPut(c *core.Call, wrap bool, mode ScatterMode, dims []int) *core.Call {
	return c.Int(Flag(wrap), int64(mode)).Dims(dims)
}

// IndexPutAttrs are the attributes of [IndexPut] as kernels read them.
type IndexPutAttrs struct {
	Wrap bool // negative indices count from the end
	Mode ScatterMode
	Dims []int64 // numbers of the indexed dimensions, for error messages
}

// IndexPutOf reads the attributes of a call.
func IndexPutOf(c *core.Call) IndexPutAttrs {
	return IndexPutAttrs{c.Ints[0] != 0, ScatterMode(c.Ints[1]), c.Ints[2:]}
}

// EmbeddingBackwardAttrs are the attributes of [EmbeddingBackward].
type EmbeddingBackwardAttrs struct {
	Padding     int  // the row that gets no gradient; negative for none
	ByFrequency bool // each row's sum is divided by the number of its terms
	Add         bool // sums are added to dweight
}
