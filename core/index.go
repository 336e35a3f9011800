package core

import (
	"fmt"
	"math"
)

// An Index says what op.Index and op.IndexSet take of one dimension, as the parts of an index in square brackets do in
// Python: an integer ([At]), a slice ([Span], [All]), an index tensor or mask ([Pick]), a new dimension ([NewAxis]), or all
// the dimensions not spoken of ([Ellipsis]).
type Index struct {
	Kind              IndexKind
	Start, Stop, Step int     // of a slice; Start of an integer
	Tensor            *Tensor // of indices or a mask
}

// An IndexKind is a kind of [Index].
type IndexKind uint8

// The kinds of indices.
const (
	IndexSlice IndexKind = iota
	IndexInteger
	IndexTensor
	IndexNewAxis
	IndexEllipsis
)

// At takes the part at index i and drops the dimension; a negative i counts from the end.
func At(i int) Index { return Index{Kind: IndexInteger, Start: i} }

// Span takes the indices from start to before stop, as Python's slices do: negative bounds count from the end, and
// bounds past the ends are the ends.
func Span(start, stop int) Index { return Index{Start: start, Stop: stop, Step: 1} }

// SpanFrom takes the indices from start on.
func SpanFrom(start int) Index { return Span(start, math.MaxInt) }

// SpanTo takes the indices before stop.
func SpanTo(stop int) Index { return Span(0, stop) }

// All takes a whole dimension.
func All() Index { return Span(0, math.MaxInt) }

// By returns the slice i with only every step-th index.
func (i Index) By(step int) Index {
	i.Step = step
	return i
}

// Pick selects with t. An int64 or int32 tensor lists indices. A bool tensor selects the elements where it is true, over as many dimensions
// as it has.
func Pick(t *Tensor) Index { return Index{Kind: IndexTensor, Tensor: t} }

// NewAxis adds a dimension of size 1.
func NewAxis() Index { return Index{Kind: IndexNewAxis} }

// Ellipsis takes all dimensions that no other index covers.
func Ellipsis() Index { return Index{Kind: IndexEllipsis} }

// String returns the index in Python's notation.
func (i Index) String() string {
	switch i.Kind {
	case IndexInteger:
		return fmt.Sprint(i.Start)
	case IndexTensor:
		return i.Tensor.String()
	case IndexNewAxis:
		return "None"
	case IndexEllipsis:
		return "..."
	}
	s := ""
	if i.Start != 0 {
		s = fmt.Sprint(i.Start)
	}
	s += ":"
	if i.Stop != math.MaxInt {
		s += fmt.Sprint(i.Stop)
	}
	if i.Step != 1 {
		s += fmt.Sprint(":", i.Step)
	}
	return s
}
