package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// Reshard writes to the pieces that each rank of group wants what the ranks have, without files. A rank may want pieces of
// tensors of which it has none, and none of those it has. Values are converted to the dtypes of the wanted pieces. The
// tensors move one after the other: beside what it has and wants, a rank needs memory for pieces of one.
//
// Errors, on every rank: those of [Save] for pieces that do not fit together, and those of [Load] for pieces that nobody
// has, with all that is wanted as it was; what the group says of ranks that are gone.
func Reshard(have, want []Piece, group *collective.Group) error {
	m, err := newMove(have, want, worldOf(group, "a reshard"))
	if err != nil {
		return err
	}
	err = nil
	core.NoGrad(func() {
		for _, name := range m.plan.names {
			if err = m.tensor(name); err != nil {
				return
			}
		}
		for _, p := range want {
			if err = p.Tensor.Wait(); err != nil {
				return
			}
		}
	})
	return err
}

// Gather returns the whole tensors, by name, on the rank root of group, where they are new tensors on the given device;
// nil on the others.
//
// Errors: as those of [Reshard].
func Gather(have []Piece, root int, device core.Device, group *collective.Group) (map[string]*core.Tensor, error) {
	w := worldOf(group, "a gather")
	shapes, err := known(have, w)
	if err != nil {
		return nil, err
	}
	var whole map[string]*core.Tensor
	var want []Piece
	if w.rank() == root {
		whole = map[string]*core.Tensor{}
		for name, d := range shapes {
			dtype, _ := d.DType.Core()
			t := op.EmptyWith(d.Whole, op.TensorOptions{DType: &dtype, Device: device}).Keep()
			whole[name] = t
			want = append(want, Piece{Name: name, Tensor: t})
		}
	}
	if err := Reshard(have, want, group); err != nil {
		for _, t := range whole {
			t.Release()
		}
		return nil, err
	}
	return whole, nil
}

// Scatter writes the whole tensors of the rank root, by name, to the pieces that each rank wants. The other ranks' whole is not
// used.
//
// Errors: as those of [Reshard].
func Scatter(whole map[string]*core.Tensor, want []Piece, root int, group *collective.Group) error {
	var have []Piece
	if worldOf(group, "a scatter").rank() == root {
		for name, t := range whole {
			have = append(have, Piece{Name: name, Tensor: t})
		}
	}
	return Reshard(have, want, group)
}

// known returns a description, by name, of every tensor of which some rank has a piece.
func known(have []Piece, w world) (map[string]described, error) {
	mine, problem := describe(have)
	all, err := exchange(w, mine, problem)
	if err != nil {
		return nil, err
	}
	tensors := map[string]described{}
	for _, pieces := range all {
		for _, d := range pieces {
			tensors[d.Name] = d
		}
	}
	return tensors, nil
}

// A move is one rank's part in a Reshard.
type move struct {
	w          world
	plan       *plan
	have, want map[string][]Piece
	wants      []map[string][]box // by rank
}

func newMove(have, want []Piece, w world) (*move, error) {
	type both struct{ Have, Want []described }
	var mine both
	var problem error
	if mine.Have, problem = describe(have); problem == nil {
		mine.Want, problem = describe(want)
	}
	all, err := exchange(w, mine, problem)
	if err != nil {
		return nil, err
	}
	ranks := make([]description, len(all))
	m := &move{w: w, have: byName(have), want: byName(want), wants: make([]map[string][]box, len(all))}
	for r, a := range all {
		ranks[r].Pieces = a.Have
	}
	if m.plan, err = merge(ranks); err != nil {
		return nil, err
	}
	for r, a := range all {
		m.wants[r] = map[string][]box{}
		for _, d := range a.Want {
			t := m.plan.tensors[d.Name]
			if t == nil {
				return nil, errorf(core.ValueError, "rank %d wants tensor %q, of which no rank has a piece", r, d.Name)
			}
			if !slices.Equal(t.whole, d.Whole) {
				return nil, errorf(core.ShapeError, "tensor %q: rank %d wants a piece of shape %v, the ranks have pieces of %v", d.Name, r, d.Whole, t.whole)
			}
			m.wants[r][d.Name] = append(m.wants[r][d.Name], d.Box)
		}
	}
	return m, nil
}

func byName(pieces []Piece) map[string][]Piece {
	m := map[string][]Piece{}
	for _, p := range pieces {
		m[p.Name] = append(m[p.Name], p)
	}
	return m
}

// tensor moves one tensor: every rank goes through all that is wanted in one order, so that sends and receives of two ranks
// meet.
func (m *move) tensor(name string) (err error) {
	t, me := m.plan.tensors[name], m.w.rank()
	var works []*collective.Work
	var after []func() error // once all have come
	core.Tidy(func() {
		for r, wants := range m.wants {
			for i, wanted := range wants[name] {
				for _, s := range t.from {
					both, ok := s.and(wanted)
					if !ok {
						continue
					}
					from := s.ranks[r%len(s.ranks)] // ranks that hold the same share the sending
					if slices.Contains(s.ranks, r) {
						from = r
					}
					if me != from && me != r {
						continue
					}
					var source, target *core.Tensor
					if me == from {
						source = narrowed(m.held(name, s.box), both, s.Offset)
					}
					if me == r {
						target = narrowed(m.want[name][i].Tensor, both, wanted.Offset)
					}
					if me == from && me == r {
						after = append(after, func() error { return op.CopyInPlace(target, source).Err() })
					} else if me == from {
						works = append(works, m.w.group.For("tensor "+name).Send(op.Contiguous(source), r, 0))
					} else {
						arrives := target
						if d, _ := t.dtype.Core(); !target.Contiguous() || target.DType() != d {
							arrives = op.EmptyWith(both.Shape, op.TensorOptions{DType: &d, Device: target.Device()})
							after = append(after, func() error { return op.CopyInPlace(target, arrives).Err() })
						}
						works = append(works, m.w.group.For("tensor "+name).Recv(arrives, from, 0))
					}
				}
			}
		}
		for _, w := range works {
			err = errors.Join(err, w.Wait())
		}
		for _, f := range after {
			if err == nil {
				err = f()
			}
		}
	})
	if err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	return nil
}

// held returns the rank's own tensor of a piece.
func (m *move) held(name string, b box) *core.Tensor {
	for _, p := range m.have[name] {
		if p.box().equal(b) {
			return p.Tensor
		}
	}
	return core.ErrorTensor(errorf(core.StateError, "tensor %q: the rank lost its piece %v", name, b))
}
