package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// Reshard copies the pieces that the ranks have to the pieces that each rank of group wants, without files. A rank may want pieces of
// tensors of which it has none. Values are converted to the dtypes of the wanted pieces. Tensors move one at a time, so a rank needs extra
// memory for the pieces of one tensor only.
//
// Errors, on every rank: those of [Save] for pieces that do not match, and those of [Load] for pieces that no rank has, both with all
// wanted pieces unchanged; errors of the group, such as a rank that has left.
func Reshard(have, want []Piece, group *collective.Group) error {
	have, problem := localPieces(have)
	if problem == nil {
		want, problem = localPieces(want)
	}
	m, err := newMove(have, want, problem, worldOf(group, "a reshard"))
	if err != nil {
		return err
	}
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

// Gather returns the whole tensors, by name, on the rank root of group, as new tensors on device. On other ranks it returns nil.
//
// Errors: see [Reshard].
func Gather(have []Piece, root int, device core.Device, group *collective.Group) (map[string]*core.Tensor, error) {
	w := worldOf(group, "a gather")
	shapes, err := describeAll(have, w)
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

// Scatter copies the whole tensors of the rank root, by name, to the pieces that each rank wants. It ignores whole on other ranks.
//
// Errors: see [Reshard].
func Scatter(whole map[string]*core.Tensor, want []Piece, root int, group *collective.Group) error {
	var have []Piece
	if worldOf(group, "a scatter").rank() == root {
		for name, t := range whole {
			have = append(have, Piece{Name: name, Tensor: t})
		}
	}
	return Reshard(have, want, group)
}

// describeAll returns a description of every tensor of which a rank has a piece, by name.
func describeAll(have []Piece, w world) (map[string]pieceDescription, error) {
	have, problem := localPieces(have)
	var mine []pieceDescription
	if problem == nil {
		mine, problem = describe(have)
	}
	all, err := exchange(w, mine, problem)
	if err != nil {
		return nil, err
	}
	tensors := map[string]pieceDescription{}
	for _, pieces := range all {
		for _, d := range pieces {
			tensors[d.Name] = d
		}
	}
	return tensors, nil
}

// A move is one rank's share of a Reshard.
type move struct {
	w          world
	plan       *plan
	have, want map[string][]Piece
	wants      []map[string][]box // by rank
}

// newMove plans a move. A rank with a problem gets it back, and the others an error that names the rank.
func newMove(have, want []Piece, problem error, w world) (*move, error) {
	type both struct{ Have, Want []pieceDescription }
	var mine both
	if problem == nil {
		mine.Have, problem = describe(have)
	}
	if problem == nil {
		mine.Want, problem = describe(want)
	}
	all, err := exchange(w, mine, problem)
	if err != nil {
		return nil, err
	}
	ranks := make([]rankDescription, len(all))
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

// tensor moves one tensor. Every rank visits the wanted pieces in the same order, so that the sends and receives of two ranks match.
func (m *move) tensor(name string) (err error) {
	t, me := m.plan.tensors[name], m.w.rank()
	var works []*collective.Work
	var after []func() error // copies to make once everything has been received
	core.Tidy(func() {
		for r, wants := range m.wants {
			for i, wanted := range wants[name] {
				for _, s := range t.from {
					both, ok := s.intersect(wanted)
					if !ok {
						continue
					}
					from := s.ranks[r%len(s.ranks)] // ranks with the same piece take turns as senders
					if slices.Contains(s.ranks, r) {
						from = r
					}
					if me != from && me != r {
						continue
					}
					var source, target *core.Tensor
					if me == from {
						source = narrowed(m.ownPiece(name, s.box), both, s.Offset)
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

// ownPiece returns the rank's own tensor of a piece.
func (m *move) ownPiece(name string, b box) *core.Tensor {
	for _, p := range m.have[name] {
		if p.box().equal(b) {
			return p.Tensor
		}
	}
	return core.ErrorTensor(errorf(core.StateError, "tensor %q: the rank lost its piece %v", name, b))
}
