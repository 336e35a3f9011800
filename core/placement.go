package core

import "fmt"

// A PlacementKind is one of the ways in which a tensor can lie along a dimension of a mesh of ranks.
type PlacementKind uint8

// The kinds of placements.
const (
	Replicated PlacementKind = iota // every rank has all elements
	Sharded                         // each rank has a part of one dimension of the tensor
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
	Factor  int         // if it is sharded and interleaved, otherwise 0
	Combine Combination // if it is pending
}

// Replicate is the placement of a tensor of which every rank has all elements.
func Replicate() Placement { return Placement{} }

// Shard is the placement of a tensor that is divided along dimension dim. Of n elements and k ranks, each has ceil(n/k), as long as they
// last; the last ranks may have fewer or none.
func Shard(dim int) Placement { return Placement{Kind: Sharded, Dim: dim} }

// InterleavedShard is the placement of a tensor that is cut along dimension dim into factor pieces, of each of which every rank has a part. So
// a mesh divides a dimension first along a later dimension of its own: along it there is a [Shard], and factor is the number of its ranks.
// A factor of 1 makes an ordinary shard.
func InterleavedShard(dim, factor int) Placement {
	if factor == 1 {
		factor = 0
	}
	return Placement{Kind: Sharded, Dim: dim, Factor: factor}
}

// Partial is the placement of a tensor whose elements are combined of the ranks' elements.
func Partial(c Combination) Placement { return Placement{Kind: Pending, Combine: c} }

// Shards reports whether the placement divides dimension dim.
func (p Placement) Shards(dim int) bool { return p.Kind == Sharded && p.Dim == dim }

// String returns the placement as it is written in Python, such as "Shard(0)".
func (p Placement) String() string {
	switch p.Kind {
	case Sharded:
		if p.Factor != 0 {
			return fmt.Sprintf("_StridedShard(%d, split_factor=%d)", p.Dim, p.Factor)
		}
		return fmt.Sprintf("Shard(%d)", p.Dim)
	case Pending:
		return fmt.Sprintf("Partial(%v)", p.Combine)
	}
	return "Replicate()"
}
