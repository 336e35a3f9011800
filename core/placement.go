package core

import "fmt"

// A PlacementKind is one of the ways in which a tensor can lie along a dimension of a mesh of ranks.
type PlacementKind uint8

// The kinds of placements.
const (
	Replicated PlacementKind = iota // every rank has all elements
	Sharded                         // each rank has a range of one dimension of the tensor
	Pending                         // the elements follow from the elements of all ranks, such as their sums
)

// A Combination says how the elements of a tensor follow from the ranks' elements.
type Combination uint8

// The combinations of [Pending] placements.
const (
	Sums Combination = iota
	Means
	Products
	Maxima
	Minima
)

// String returns PyTorch's name of the combination, such as "sum".
func (c Combination) String() string {
	return [...]string{"sum", "avg", "product", "max", "min"}[c]
}

// A Placement says how a tensor lies along one dimension of a mesh. The zero value means that every rank has all of it.
type Placement struct {
	Kind    PlacementKind
	Dim     int         // of the tensor, if it is sharded
	Combine Combination // if it is pending
}

// Replicate is the placement of a tensor of which every rank has all elements.
func Replicate() Placement { return Placement{} }

// Shard is the placement of a tensor that is divided along dimension dim. Of n elements and k ranks, each has ceil(n/k), as long as they
// last; the last ranks may have fewer or none.
func Shard(dim int) Placement { return Placement{Kind: Sharded, Dim: dim} }

// Partial is the placement of a tensor whose elements are combined of the ranks' elements.
func Partial(c Combination) Placement { return Placement{Kind: Pending, Combine: c} }

// String returns the placement as it is written in Python, such as "Shard(0)".
func (p Placement) String() string {
	switch p.Kind {
	case Sharded:
		return fmt.Sprintf("Shard(%d)", p.Dim)
	case Pending:
		return fmt.Sprintf("Partial(%v)", p.Combine)
	}
	return "Replicate()"
}
