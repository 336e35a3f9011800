package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASaveReplacesTheOneBefore(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, dir, byRows, 4)
	keep := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(keep, nil, 0o666))
	left := filepath.Join(dir, fileName("0123456789abcdef", 0, 9)) // of a save that was killed
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o666))
	require.NoError(t, os.WriteFile(left+".00c0ffee.tmp", []byte("half"), 0o666))
	saveAs(t, dir, byColumns, 2)
	x, err := readIndex(dir)
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, len(x.Files)+2, "%v", files)
	assert.FileExists(t, keep)
}

func TestSaveAsync(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, ranks(3, func(r *collective.Rank) error {
		want := piecesOf(byRows, r.Rank, 3)
		have := make([]Piece, len(want))
		for i, p := range want {
			have[i] = p
			have[i].Tensor = op.Clone(p.Tensor)
		}
		pending, err := SaveAsync(dir, State{Pieces: have}, r.World)
		if err != nil {
			return err
		}
		for _, p := range have { // what comes later is not saved
			op.ZeroInPlace(p.Tensor)
		}
		if err := r.World.Barrier(); err != nil { // the ranks' own calls go on meanwhile
			return err
		}
		if err := pending.Wait(); err != nil {
			return err
		}
		got := blank(want)
		if _, err := Load(dir, State{Pieces: got}, r.World); err != nil {
			return err
		}
		return equalPieces(got, want)
	}))
}

func TestTwoSavesAtOnce(t *testing.T) {
	dir := t.TempDir()
	first := &save{dir: dir}
	require.NoError(t, first.reserve(0))
	err := Save(dir, State{}, nil)
	assert.ErrorContains(t, err, "is still running")
	first.end()
	assert.NoError(t, Save(dir, State{}, nil))
}
