package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A State is what a rank saves, or wants to load.
type State struct {
	Pieces []Piece
	// Values are the parts of the state that are no tensors, such as a step number, as JSON by name. Ranks may give equal values under one
	// name. A value that differs between ranks needs a name per rank.
	Values map[string]json.RawMessage
	// Problem, if set, makes the save or load fail on every rank with this error.
	Problem error
}

// A Piece is a rank's shard of a tensor.
type Piece struct {
	Name   string       // of the whole tensor
	Tensor *core.Tensor // the shard, in any layout; or a distributed tensor, which says where its shards are
	Shape  []int        // shape of the whole tensor; nil if the piece is all of it
	Offset []int        // position of the shard in the whole; nil for the origin
	// Any allows ranks to hold different values of this piece, such as batch norm statistics. The lowest rank's values are saved. Without
	// it different values are an error.
	Any bool
}

// localState returns s with this rank's parts in place of distributed tensors.
func localState(s State) State {
	if s.Problem == nil {
		s.Pieces, s.Problem = localPieces(s.Pieces)
	}
	return s
}

// localPieces returns the pieces with this rank's parts in place of distributed tensors. It leaves out empty parts.
func localPieces(pieces []Piece) ([]Piece, error) {
	if !slices.ContainsFunc(pieces, func(p Piece) bool { return p.Tensor.Parts() != nil }) {
		return pieces, nil
	}
	var list []Piece
	for _, p := range pieces {
		if parts := p.Tensor.Parts(); parts != nil {
			switch {
			case p.Shape != nil || p.Offset != nil:
				return nil, errorf(core.ValueError, "tensor %q: got a distributed tensor with a shape %v and an offset %v, want none: its placements say where its parts are", p.Name, p.Shape, p.Offset)
			case parts.Pending():
				return nil, errorf(core.ValueError, "tensor %q is placed %v, want Shard or Replicate: its elements are combined of those of all ranks; redistribute it first", p.Name, parts)
			}
			list = append(list, boxes(p)...)
			continue
		}
		list = append(list, p)
	}
	return list, nil
}

// boxes returns the pieces that this rank has of a distributed tensor. One without elements is all there.
func boxes(p Piece) (list []Piece) {
	whole, here := p.Tensor.Shape(), p.Tensor.Parts().Local()
	if p.Tensor.Numel() == 0 {
		p.Shape, p.Offset, p.Tensor = slices.Clone(whole), tensor.Offset(p.Tensor), here
		return []Piece{p}
	}
	for _, b := range tensor.Boxes(p.Tensor) {
		part := p
		part.Shape, part.Offset, part.Tensor = slices.Clone(whole), b.Offset, here
		if !slices.Equal(b.Shape, here.Shape()) {
			part.Tensor = narrowed(here.Detach(), box{b.At, b.Shape}, make([]int, len(whole)))
		}
		list = append(list, part)
	}
	return list
}

// whole returns the shape of the whole tensor.
func (p Piece) whole() []int {
	if p.Shape == nil {
		return p.Tensor.Shape()
	}
	return p.Shape
}

func (p Piece) box() box {
	b := box{Offset: slices.Clone(p.Offset), Shape: slices.Clone(p.Tensor.Shape())}
	if b.Offset == nil {
		b.Offset = make([]int, len(b.Shape))
	}
	return b
}

// check returns an error if p is not valid.
func (p Piece) check() error {
	if p.Name == "" {
		return errorf(core.ValueError, "a piece of shape %v has no name", p.Shape)
	}
	if p.Tensor == nil {
		return errorf(core.TypeError, "tensor %q: the piece has no tensor", p.Name)
	}
	if err := p.Tensor.Usable(format); err != nil {
		return fmt.Errorf("tensor %q: %w", p.Name, err)
	}
	if p.Tensor.IsNumber() {
		return errorf(core.TypeError, "tensor %q: a number has no memory; save it as a value", p.Name)
	}
	whole, b := p.whole(), p.box()
	if len(b.Offset) != len(whole) || len(b.Shape) != len(whole) {
		return errorf(core.ShapeError, "tensor %q of shape %v: got a piece of shape %v at %v, want as many dimensions", p.Name, whole, b.Shape, b.Offset)
	}
	for d, n := range whole {
		if b.Offset[d] < 0 || b.Shape[d] < 0 || b.Offset[d] > n-b.Shape[d] {
			return errorf(core.ShapeError, "tensor %q of shape %v: the piece %v is out of bounds", p.Name, whole, b)
		}
	}
	return nil
}

// A box is a region of a tensor: its first index and its size in each dimension.
type box struct {
	Offset []int `json:"offset"`
	Shape  []int `json:"shape"`
}

// String formats b as Python slices, such as [0:2, 3:6].
func (b box) String() string {
	spans := make([]string, len(b.Shape))
	for d, n := range b.Shape {
		spans[d] = fmt.Sprintf("%d:%d", b.Offset[d], b.Offset[d]+n)
	}
	return "[" + strings.Join(spans, ", ") + "]"
}

func (b box) equal(c box) bool {
	return slices.Equal(b.Offset, c.Offset) && slices.Equal(b.Shape, c.Shape)
}

// count returns the number of elements; 1 for a 0-d box.
func (b box) count() int {
	n := 1
	for _, d := range b.Shape {
		n *= d
	}
	return n
}

// intersect returns the intersection of b and c, and false if it is empty.
func (b box) intersect(c box) (box, bool) {
	both := box{make([]int, len(b.Shape)), make([]int, len(b.Shape))}
	for d := range b.Shape {
		begin := max(b.Offset[d], c.Offset[d])
		end := min(b.Offset[d]+b.Shape[d], c.Offset[d]+c.Shape[d])
		if begin >= end {
			return box{}, false
		}
		both.Offset[d], both.Shape[d] = begin, end-begin
	}
	return both, true
}

// key returns the name of piece b in a file: the tensor's name, plus the region if b is not all of it.
func (b box) key(name string, whole []int) string {
	if slices.Equal(b.Shape, whole) {
		return name
	}
	return name + b.String()
}

// covers returns an error unless the boxes cover a tensor of the given shape, each element exactly once. No box may be empty.
func covers(name string, whole []int, boxes []box) error {
	held := 0
	for i, b := range boxes {
		held += b.count()
		for _, c := range boxes[:i] {
			if both, ok := b.intersect(c); ok {
				return errorf(core.ValueError, "tensor %q of shape %v: the pieces %v and %v overlap in %v", name, whole, c, b, both)
			}
		}
	}
	if want := (box{Shape: whole}).count(); held != want {
		return errorf(core.ValueError, "tensor %q of shape %v: the ranks hold %d of its %d elements: %v", name, whole, held, want, boxes)
	}
	return nil
}
