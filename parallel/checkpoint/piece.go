package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A State is what a rank has, or wants.
type State struct {
	Pieces []Piece
	// Values are those parts of the state that are no tensors, such as the number of a step, as JSON by name. Ranks may give
	// the same value under one name; values that differ from rank to rank need names that differ.
	Values map[string]json.RawMessage
	// Problem, if set, keeps the rank from taking part: every rank returns it as an error.
	Problem error
}

// A Piece is the part of a tensor that a rank holds.
type Piece struct {
	Name   string       // of the whole tensor
	Tensor *core.Tensor // the part, of any layout
	Shape  []int        // the whole tensor's shape; nil if the piece is all of it
	Offset []int        // where the part begins in the whole; nil for the origin
	// Any says that ranks may hold different values of this piece, such as the statistics of a batch normalisation: the lowest
	// rank's are saved. Otherwise it is an error if they do.
	Any bool
}

// whole returns the shape of the tensor that p is a piece of.
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

// check returns what is wrong with p.
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
			return errorf(core.ShapeError, "tensor %q of shape %v: the piece %v passes its end", p.Name, whole, b)
		}
	}
	return nil
}

// A box is a part of a tensor: its first index and its extent in each dimension.
type box struct {
	Offset []int `json:"offset"`
	Shape  []int `json:"shape"`
}

// String spells b as Python slices, such as [0:2, 3:6].
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

// count returns the number of elements; 1 without dimensions.
func (b box) count() int {
	n := 1
	for _, d := range b.Shape {
		n *= d
	}
	return n
}

// and returns what b and c have in common, and false if that is nothing.
func (b box) and(c box) (box, bool) {
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

// key returns the name of the piece b of a tensor in a file: the tensor's own if b is all of it.
func (b box) key(name string, whole []int) string {
	if slices.Equal(b.Shape, whole) {
		return name
	}
	return name + b.String()
}

// covers returns an error unless the boxes, of which none may be empty, cover a tensor of the given shape, each element once.
func covers(name string, whole []int, boxes []box) error {
	held := 0
	for i, b := range boxes {
		held += b.count()
		for _, c := range boxes[:i] {
			if both, ok := b.and(c); ok {
				return errorf(core.ValueError, "tensor %q of shape %v: the pieces %v and %v overlap in %v", name, whole, c, b, both)
			}
		}
	}
	if want := (box{Shape: whole}).count(); held != want {
		return errorf(core.ValueError, "tensor %q of shape %v: the ranks hold %d of its %d elements: %v", name, whole, held, want, boxes)
	}
	return nil
}
