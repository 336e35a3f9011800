package checkpoint

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/safetensors"
)

// A description is what ranks tell each other before anything is moved: what they hold, or want.
type description struct {
	Save   string `json:",omitempty"` // rank 0: the save's name
	Dir    string `json:",omitempty"` // of a save, without links
	Pieces []described
	Values map[string]json.RawMessage `json:",omitempty"`
}

type described struct {
	Name  string
	DType safetensors.DType
	Whole []int
	Box   box
	On    string // the kind of device: equal computations have equal bits on devices of one kind
	Any   bool   `json:",omitempty"`
}

// describeState checks what s asks for and describes its pieces.
func describeState(s State) ([]described, error) {
	if s.Problem != nil {
		return nil, s.Problem
	}
	return describe(s.Pieces)
}

// describe checks pieces and describes them.
func describe(pieces []Piece) ([]described, error) {
	list := make([]described, len(pieces))
	for i, p := range pieces {
		if err := p.check(); err != nil {
			return nil, err
		}
		list[i] = described{p.Name, safetensors.DTypeOf(p.Tensor.DType()), slices.Clone(p.whole()), p.box(), kindOf(p.Tensor.Device()), p.Any}
	}
	return list, nil
}

// kindOf returns what devices that compute the same bits have in common.
func kindOf(d core.Device) string {
	if n, ok := d.(interface{ Name() string }); ok {
		return d.Kind() + " " + n.Name()
	}
	return d.Kind()
}

// A source is a piece of a tensor and the ranks that hold it.
type source struct {
	box
	ranks []int
	on    []string // the kinds of devices, by index of ranks
	any   bool     // the ranks may hold different values
}

// A plan says what all ranks together hold of each tensor.
type plan struct {
	tensors map[string]*planned
	names   []string // sorted
}

type planned struct {
	dtype safetensors.DType
	whole []int
	first int      // the lowest rank that holds any of it
	from  []source // none of them empty
}

// merge joins what the ranks hold. Every rank gets the same plan or the same error.
func merge(ranks []description) (*plan, error) {
	p := &plan{tensors: map[string]*planned{}}
	for r, d := range ranks {
		own := map[string][]box{}
		for _, piece := range d.Pieces {
			t := p.tensors[piece.Name]
			if t == nil {
				t = &planned{dtype: piece.DType, whole: piece.Whole, first: r}
				p.tensors[piece.Name] = t
			}
			if t.dtype != piece.DType || !slices.Equal(t.whole, piece.Whole) {
				return nil, errorf(core.DistributedError, "tensor %q: rank %d holds a piece of %s%v, rank %d of %s%v",
					piece.Name, t.first, t.dtype, t.whole, r, piece.DType, piece.Whole)
			}
			for _, b := range own[piece.Name] {
				if b.equal(piece.Box) {
					return nil, errorf(core.ValueError, "tensor %q: rank %d gave the piece %v twice", piece.Name, r, b)
				}
			}
			own[piece.Name] = append(own[piece.Name], piece.Box)
			if piece.Box.count() > 0 {
				t.add(piece, r)
			}
		}
	}
	p.names = slices.Sorted(maps.Keys(p.tensors))
	for _, name := range p.names {
		t := p.tensors[name]
		boxes := make([]box, len(t.from))
		for i, s := range t.from {
			boxes[i] = s.box
		}
		if err := covers(name, t.whole, boxes); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (t *planned) add(piece described, rank int) {
	for i := range t.from {
		if s := &t.from[i]; s.equal(piece.Box) {
			s.ranks, s.on, s.any = append(s.ranks, rank), append(s.on, piece.On), s.any || piece.Any
			return
		}
	}
	t.from = append(t.from, source{piece.Box, []int{rank}, []string{piece.On}, piece.Any})
}

// writers chooses one rank for every piece, so that the ranks write about as many bytes each. The result holds, by tensor
// and piece, a number of a rank.
func (p *plan) writers(world int) map[string][]int {
	written := make([]int, world)
	chosen := map[string][]int{}
	for _, name := range p.names {
		t := p.tensors[name]
		chosen[name] = make([]int, len(t.from))
		for i, s := range t.from {
			w := s.ranks[0]
			if !s.any {
				w = slices.MinFunc(s.ranks, func(a, b int) int { return written[a] - written[b] })
			}
			written[w] += s.count() * t.dtype.Bits() / 8
			chosen[name][i] = w
		}
	}
	return chosen
}

// joinValues brings the ranks' values together.
func joinValues(ranks []description) (map[string]json.RawMessage, error) {
	all, from := map[string]json.RawMessage{}, map[string]int{}
	for r, d := range ranks {
		for _, name := range slices.Sorted(maps.Keys(d.Values)) {
			v := d.Values[name]
			if old, ok := all[name]; !ok {
				all[name], from[name] = v, r
			} else if !bytes.Equal(old, v) {
				return nil, errorf(core.DistributedError, "value %q: rank %d gave %.60s, rank %d %.60s; values of a rank's own need names of their own", name, from[name], old, r, v)
			}
		}
	}
	return all, nil
}

// checkValues refuses what is no JSON and writes the rest in one spelling.
func checkValues(values map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	clean := make(map[string]json.RawMessage, len(values))
	for name, v := range values {
		var b bytes.Buffer
		if err := json.Compact(&b, v); err != nil {
			return nil, errorf(core.ValueError, "value %q: %w", name, err)
		}
		clean[name] = b.Bytes()
	}
	return clean, nil
}
