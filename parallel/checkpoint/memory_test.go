package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// If any allocation of a rank fails, the save or load returns an error on that rank. The folder keeps its checkpoint, tensors keep their
// values, and no rank hangs.
func TestOutOfMemory(t *testing.T) {
	for _, n := range []int{1, 2} {
		dir := t.TempDir()
		saveAs(t, dir, byRows, n)
		victim := n - 1
		var saved, loaded [2][]Piece
		var targets []*core.Tensor
		for r := range n {
			saved[r] = piecesOf(byColumns, r, n)
			for i, p := range saved[r] {
				saved[r][i].Tensor = op.Transpose(op.Clone(op.Transpose(atLeast2(p.Tensor), 0, 1)), 0, 1).Detach()
				saved[r][i].Tensor = op.Reshape(saved[r][i].Tensor, p.Tensor.Shape()...)
			}
			loaded[r] = blank(saved[r])
			for _, p := range loaded[r] {
				targets = append(targets, p.Tensor)
			}
		}
		// of runs fn on all ranks, and returns what it returned on the victim.
		of := func(fn func(r *collective.Rank) error) error {
			var its error
			err := ranks(n, func(r *collective.Rank) error {
				err := fn(r)
				if r.Rank == victim {
					its = err
				}
				return err
			})
			if its != nil {
				return its
			}
			return err
		}
		whole := func() {
			want := piecesOf(replicated, 0, 1)
			got := blank(want)
			_, err := Load(dir, State{Pieces: got}, nil)
			require.NoError(t, err)
			require.NoError(t, equalPieces(got, want))
		}
		coretest.EachAllocation(t, func() error {
			return of(func(r *collective.Rank) error { return Save(dir, State{Pieces: saved[r.Rank]}, r.World) })
		}, whole, victim)
		whole()
		dev := targets[0].Device()
		coretest.EachAllocation(t, func() error {
			return of(func(r *collective.Rank) error {
				_, err := Load(dir, State{Pieces: loaded[r.Rank]}, r.World)
				return err
			})
		}, coretest.Unchanged(t, dev, -1, targets...), victim)
	}
}

// atLeast2 returns t with two dimensions or more.
func atLeast2(t *core.Tensor) *core.Tensor {
	for t.Dim() < 2 {
		t = op.Unsqueeze(t, 0)
	}
	return t
}
