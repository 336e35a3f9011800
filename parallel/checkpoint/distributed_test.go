package checkpoint

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A placed layout says how the tensors lie on a mesh.
type placed struct {
	mesh  []int
	place []core.Placement
}

var distributed = []placed{
	{[]int{1}, []core.Placement{core.Shard(0)}},
	{[]int{2}, []core.Placement{core.Replicate()}},
	{[]int{2}, []core.Placement{core.Shard(1)}},
	{[]int{3}, []core.Placement{core.Shard(0)}},
	{[]int{2, 2}, []core.Placement{core.Shard(0), core.Shard(1)}},
	{[]int{2, 2}, []core.Placement{core.Replicate(), core.Shard(0)}},
	{[]int{2, 2}, []core.Placement{core.Shard(0), core.Shard(0)}},
	{[]int{2, 2}, []core.Placement{core.InterleavedShard(0, 2), core.Shard(0)}},
	{[]int{3}, []core.Placement{core.InterleavedShard(0, 2)}},
	{[]int{2, 2}, []core.Placement{core.InterleavedShard(0, 3), core.InterleavedShard(1, 2)}},
}

// pieces returns the tensors of the tests as distributed ones, or zeros in their place. Dimensions that a tensor has not are not sharded.
func (p placed) pieces(m *mesh.Mesh, blank bool) []Piece {
	var out []Piece
	for name, shape := range shapes {
		place := slices.Clone(p.place)
		for i, q := range place {
			if q.Kind == core.Sharded && q.Dim >= len(shape) {
				place[i] = core.Replicate()
			}
		}
		replicated := tensor.FromLocal(number(name), m, nil, nil)
		if blank {
			replicated = op.ZerosLike(replicated, op.TensorOptions{})
		}
		out = append(out, Piece{Name: name, Tensor: tensor.Redistribute(replicated, place)})
	}
	return out
}

// run calls fn on the ranks of the mesh.
func (p placed) run(fn func(m *mesh.Mesh, r *collective.Rank) error) error {
	return ranks(core.Numel(p.mesh), func(r *collective.Rank) error {
		m, err := mesh.New(r.World, p.mesh, mesh.Options{})
		if err != nil {
			return err
		}
		return fn(m, r)
	})
}

// equalParts compares each rank's parts.
func equalParts(got, want []Piece) error {
	for i := range want {
		at := slices.IndexFunc(got, func(p Piece) bool { return p.Name == want[i].Name })
		g, w := got[at], want[i]
		g.Tensor, w.Tensor = g.Tensor.Parts().Local(), w.Tensor.Parts().Local()
		if err := equalPieces([]Piece{g}, []Piece{w}); err != nil {
			return err
		}
	}
	return nil
}

func TestDistributedTensorsLoadInEveryLayout(t *testing.T) {
	for _, from := range distributed {
		dir := filepath.Join(t.TempDir(), "checkpoint")
		require.NoError(t, from.run(func(m *mesh.Mesh, r *collective.Rank) error {
			p, err := SaveAsync(dir, State{Pieces: from.pieces(m, false)}, r.World)
			if err != nil {
				return err
			}
			return p.Wait()
		}), "%v", from)
		whole := piecesOf(replicated, 0, 1)
		got := blank(whole)
		_, err := Load(dir, State{Pieces: got}, nil)
		require.NoError(t, err)
		require.NoError(t, equalPieces(got, whole))
		for _, to := range distributed {
			require.NoError(t, to.run(func(m *mesh.Mesh, r *collective.Rank) error {
				got := to.pieces(m, true)
				if _, err := Load(dir, State{Pieces: got}, r.World); err != nil {
					return err
				}
				return equalParts(got, to.pieces(m, false))
			}), "%v to %v", from, to)
		}
	}
}

func TestDistributedTensorsGatherScatterAndReshard(t *testing.T) {
	for _, p := range distributed {
		require.NoError(t, p.run(func(m *mesh.Mesh, r *collective.Rank) error {
			want := p.pieces(m, false)
			whole, err := Gather(want, 0, nil, r.World)
			if err != nil {
				return err
			}
			for name, t := range whole {
				if err := equalPieces([]Piece{{Tensor: t}}, replicated(name, 0, 1)); err != nil {
					return err
				}
			}
			got := p.pieces(m, true)
			if err := Scatter(whole, got, 0, r.World); err != nil {
				return err
			}
			if err := equalParts(got, want); err != nil {
				return err
			}
			rows := piecesOf(byRows, r.Rank, r.World.Size())
			filled := blank(rows)
			if err := Reshard(want, filled, r.World); err != nil {
				return err
			}
			return equalPieces(filled, rows)
		}), "%v", p)
	}
}

func TestPartsOfReplicatedTensorsAreWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	p := placed{[]int{2, 2}, []core.Placement{core.Replicate(), core.Shard(0)}}
	require.NoError(t, p.run(func(m *mesh.Mesh, r *collective.Rank) error {
		x := tensor.Redistribute(tensor.FromLocal(op.Ones(1000), m, nil, nil), p.place)
		return Save(dir, State{Pieces: []Piece{{Name: "x", Tensor: x}}}, r.World)
	}))
	x, err := readIndex(dir)
	require.NoError(t, err)
	require.Len(t, x.Tensors["x"].Pieces, 2)
	bytes := int64(0)
	for _, f := range x.Files {
		bytes += f.Bytes
	}
	assert.Less(t, bytes, int64(4000+1000))
}

func TestDistributedTensorsThatCannotBeSaved(t *testing.T) {
	dir := t.TempDir()
	p := placed{[]int{2}, []core.Placement{core.Partial(core.Sums)}}
	require.NoError(t, p.run(func(m *mesh.Mesh, r *collective.Rank) error {
		x := tensor.FromLocal(op.Ones(4), m, p.place, nil)
		for _, err := range []error{
			Save(dir, State{Pieces: []Piece{{Name: "x", Tensor: x}}}, r.World),
			Reshard([]Piece{{Name: "x", Tensor: x}}, nil, r.World),
		} {
			if err == nil || !strings.Contains(err.Error(), `tensor "x" is placed [Partial(sum)], want Shard or Replicate`) {
				return fmt.Errorf("got %v", err)
			}
		}
		part := op.Full([]int{2}, core.Num(float64(r.Rank)), op.TensorOptions{})
		y := tensor.FromLocal(part, m, nil, nil)
		if err := Save(dir, State{Pieces: []Piece{{Name: "y", Tensor: y}}}, r.World); err == nil || !strings.Contains(err.Error(), "hold different values") {
			return fmt.Errorf("replicated parts that differ: got %v", err)
		}
		return nil
	}))
}
