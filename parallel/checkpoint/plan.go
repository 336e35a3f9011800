package checkpoint

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/safetensors"
)

// A rankDescription is the message that ranks exchange before any data moves: the pieces that they hold or want.
type rankDescription struct {
	Save   string `json:",omitempty"` // the save's name, from rank 0
	Dir    string `json:",omitempty"` // of a save, with symbolic links resolved
	Pieces []pieceDescription
	Values map[string]json.RawMessage `json:",omitempty"`
}

type pieceDescription struct {
	Name  string
	DType safetensors.DType
	Whole []int
	Box   box
	Kind  string // kind of device; only devices of one kind compute the same bits
	Any   bool   `json:",omitempty"`
}

// describeState checks s and describes its pieces.
func describeState(s State) ([]pieceDescription, error) {
	if s.Problem != nil {
		return nil, s.Problem
	}
	return describe(s.Pieces)
}

// describe checks pieces and describes them.
func describe(pieces []Piece) ([]pieceDescription, error) {
	list := make([]pieceDescription, len(pieces))
	for i, p := range pieces {
		if err := p.check(); err != nil {
			return nil, err
		}
		list[i] = pieceDescription{p.Name, safetensors.DTypeOf(p.Tensor.DType()), slices.Clone(p.whole()), p.box(), kindOf(p.Tensor.Device()), p.Any}
	}
	return list, nil
}

// kindOf returns the kind of a device; devices of one kind compute the same bits.
func kindOf(d core.Device) string {
	if n, ok := d.(interface{ Name() string }); ok {
		return d.Kind() + " " + n.Name()
	}
	return d.Kind()
}

// A source is a piece of a tensor and the ranks that hold it.
type source struct {
	box
	ranks     []int
	kinds     []string // kinds of devices, parallel to ranks
	mayDiffer bool     // ranks may hold different values
}

// A plan lists, for each tensor, the pieces that the ranks hold.
type plan struct {
	tensors map[string]*tensorPlan
	names   []string // sorted
}

type tensorPlan struct {
	dtype safetensors.DType
	whole []int
	first int      // lowest rank that holds a piece
	from  []source // pieces, none of them empty
}

// merge combines the ranks' descriptions. Every rank gets the same plan or the same error.
func merge(ranks []rankDescription) (*plan, error) {
	p := &plan{tensors: map[string]*tensorPlan{}}
	for r, d := range ranks {
		own := map[string][]box{}
		for _, piece := range d.Pieces {
			t := p.tensors[piece.Name]
			if t == nil {
				t = &tensorPlan{dtype: piece.DType, whole: piece.Whole, first: r}
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

func (t *tensorPlan) add(piece pieceDescription, rank int) {
	for i := range t.from {
		if s := &t.from[i]; s.equal(piece.Box) {
			s.ranks, s.kinds, s.mayDiffer = append(s.ranks, rank), append(s.kinds, piece.Kind), s.mayDiffer || piece.Any
			return
		}
	}
	t.from = append(t.from, source{piece.Box, []int{rank}, []string{piece.Kind}, piece.Any})
}

// writers chooses the rank that writes each piece, so that the ranks write about the same number of bytes. The result maps tensor names to
// one rank per piece.
func (p *plan) writers(world int) map[string][]int {
	written := make([]int, world)
	chosen := map[string][]int{}
	for _, name := range p.names {
		t := p.tensors[name]
		chosen[name] = make([]int, len(t.from))
		for i, s := range t.from {
			w := s.ranks[0]
			if !s.mayDiffer {
				w = slices.MinFunc(s.ranks, func(a, b int) int { return written[a] - written[b] })
			}
			written[w] += s.count() * t.dtype.Bits() / 8
			chosen[name][i] = w
		}
	}
	return chosen
}

// joinValues combines the ranks' values.
func joinValues(ranks []rankDescription) (map[string]json.RawMessage, error) {
	all, from := map[string]json.RawMessage{}, map[string]int{}
	for r, d := range ranks {
		for _, name := range slices.Sorted(maps.Keys(d.Values)) {
			v := d.Values[name]
			if old, ok := all[name]; !ok {
				all[name], from[name] = v, r
			} else if !bytes.Equal(old, v) {
				return nil, errorf(core.DistributedError, "value %q: rank %d gave %.60s, rank %d %.60s; a value that differs between ranks needs a name per rank", name, from[name], old, r, v)
			}
		}
	}
	return all, nil
}

// checkValues rejects invalid JSON and normalises the rest.
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
