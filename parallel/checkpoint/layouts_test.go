package checkpoint

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Case 52: a checkpoint saved by 4 ranks in any layout loads on 1, 2, 3 and 8 ranks in any other layout.
func TestCase52EveryLayoutLoadsInEveryOther(t *testing.T) {
	for from, saved := range layouts {
		dir := filepath.Join(t.TempDir(), "checkpoint")
		saveAs(t, dir, saved, 4)
		for to, wanted := range layouts {
			for _, n := range []int{1, 2, 3, 8} {
				err := ranks(n, func(r *collective.Rank) error {
					want := piecesOf(wanted, r.Rank, n)
					got := blank(want)
					values, err := Load(dir, State{Pieces: got}, r.World)
					if err != nil {
						return err
					}
					if s := string(values["step"]); s != `{"n":3}` {
						var n struct{ N int }
						if err := json.Unmarshal(values["step"], &n); err != nil || n.N != 3 {
							return fmt.Errorf("step: got %s", s)
						}
					}
					return equalPieces(got, want)
				})
				require.NoError(t, err, "%s on 4 ranks to %s on %d", from, to, n)
			}
		}
	}
}

// Case 54: gather whole tensors on one rank, and scatter them from one rank to the pieces of all.
func TestCase54GatherAndScatter(t *testing.T) {
	for name, l := range layouts {
		for _, n := range []int{1, 3, 4} {
			err := ranks(n, func(r *collective.Rank) error {
				root := n - 1
				want := piecesOf(l, r.Rank, n)
				whole, err := Gather(want, root, nil, r.World)
				if err != nil {
					return err
				}
				if (whole != nil) != (r.Rank == root) || whole != nil && len(whole) != len(shapes) {
					return fmt.Errorf("rank %d got %d tensors", r.Rank, len(whole))
				}
				for name, t := range whole {
					if err := equalPieces([]Piece{{Tensor: t}}, replicated(name, 0, 1)); err != nil {
						return err
					}
				}
				got := blank(want)
				if err := Scatter(whole, got, root, r.World); err != nil {
					return err
				}
				return equalPieces(got, want)
			})
			require.NoError(t, err, "%s on %d", name, n)
		}
	}
}

func TestReshardBetweenLayouts(t *testing.T) {
	for from, have := range layouts {
		for to, wanted := range layouts {
			err := ranks(4, func(r *collective.Rank) error {
				want := piecesOf(wanted, r.Rank, 4)
				got := blank(want)
				if err := Reshard(piecesOf(have, r.Rank, 4), got, r.World); err != nil {
					return err
				}
				return equalPieces(got, want)
			})
			require.NoError(t, err, "%s to %s", from, to)
		}
	}
}

func TestACopyIsWrittenOnceAndByTurns(t *testing.T) {
	dir := t.TempDir()
	err := ranks(4, func(r *collective.Rank) error {
		var pieces []Piece
		for i := range 8 {
			pieces = append(pieces, Piece{Name: fmt.Sprint("t", i), Tensor: op.Ones(1000)})
		}
		return Save(dir, State{Pieces: pieces}, r.World)
	})
	require.NoError(t, err)
	x, err := readIndex(dir)
	require.NoError(t, err)
	require.Len(t, x.Files, 4)
	for _, f := range x.Files {
		assert.Less(t, f.Bytes, int64(2*4000+1000), f.Name)
	}
}

// Ranks that hold the same piece share the sends, and a rank that already holds a piece receives nothing.
func TestCopiesShareTheSending(t *testing.T) {
	require.NoError(t, ranks(5, func(r *collective.Rank) error {
		var have []Piece
		if r.Rank == 1 || r.Rank == 2 {
			have = []Piece{{Name: "w", Tensor: op.Full([]int{4}, core.Num(3), op.TensorOptions{})}}
		}
		want := []Piece{{Name: "w", Tensor: op.Zeros(4)}}
		if err := Reshard(have, want, r.World); err != nil {
			return err
		}
		v, err := core.Values[float64](want[0].Tensor)
		if err != nil || !slices.Equal(v, []float64{3, 3, 3, 3}) {
			return fmt.Errorf("got %v, %v", v, err)
		}
		// Ranks 0 and 4 receive it from rank 1, rank 3 from rank 2.
		if n, want := r.World.Stats().Calls["send"], []int{0, 2, 1, 0, 0}[r.Rank]; n != want {
			return fmt.Errorf("sent it %d times, want %d", n, want)
		}
		return nil
	}))
}
