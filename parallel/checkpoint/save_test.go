package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/disk"
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
	left := filepath.Join(dir, fileName("0123456789abcdef", 0, 9)) // leftover of a killed save
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o666))
	require.NoError(t, os.WriteFile(left+".00c0ffee.tmp", []byte("half"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, indexName+".00c0ffee.tmp"), []byte("half"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, disk.LockName), nil, 0o666))
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
		for _, p := range have { // later changes are not saved
			op.ZeroInPlace(p.Tensor)
		}
		if err := r.World.Barrier(); err != nil { // other collectives work during the save
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

// Devices of different kinds round differently, so their values are not compared.
func TestRanksOnDevicesOfDifferentKinds(t *testing.T) {
	p := &plan{names: []string{"w"}, tensors: map[string]*tensorPlan{"w": {from: []source{
		{box: box{[]int{0}, []int{2}}, ranks: []int{0, 1, 2}, kinds: []string{"cpu", "gpu a", "gpu a"}}}}}}
	assert.NoError(t, p.compareDigests([][]uint32{{1}, {2}, {2}}))
	assert.ErrorContains(t, p.compareDigests([][]uint32{{1}, {1}, {2}}), `tensor "w": ranks 1 and 2 hold different values`)
}

// A rank whose function returns waits for its saves, and returns their error unless Wait has returned it.
func TestARankWaitsForItsSaves(t *testing.T) {
	for i := range 20 {
		dir := t.TempDir()
		require.NoError(t, ranks(2, func(r *collective.Rank) error {
			_, err := SaveAsync(dir, State{Pieces: piecesOf(byRows, r.Rank, 2)}, r.World)
			return err
		}))
		_, err := Load(dir, State{Pieces: blank(piecesOf(replicated, 0, 1))}, nil)
		require.NoError(t, err, i)
	}
	for _, asks := range []bool{false, true} {
		dir := t.TempDir()
		end := disk.Inject(func(o disk.Op) error {
			if o.Name == "rename" {
				return syscall.ENOSPC
			}
			return nil
		})
		err := ranks(2, func(r *collective.Rank) error {
			p, err := SaveAsync(dir, State{Pieces: piecesOf(byRows, r.Rank, 2)}, r.World)
			if err == nil && asks {
				assert.Error(t, p.Wait())
			}
			return err
		})
		end()
		if asks {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, syscall.ENOSPC)
		}
	}
}

func TestTwoSavesAtOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := beginSave(dir, State{}, world{})
	require.NoError(t, err)
	err = Save(dir, State{}, nil)
	assert.ErrorContains(t, err, fmt.Sprintf("is being written to by the save %s (ranks: 1) of process %d on ", first.name, os.Getpid()))
	first.release()
	assert.NoError(t, Save(dir, State{}, nil))
	assert.NoFileExists(t, filepath.Join(dir, disk.LockName))
}

func TestFoldersThatDifferFromRankToRank(t *testing.T) {
	dir := t.TempDir()
	errs := make([]error, 3)
	require.NoError(t, ranks(3, func(r *collective.Rank) error {
		errs[r.Rank] = Save(filepath.Join(dir, fmt.Sprint(min(r.Rank, 1))), State{Pieces: piecesOf(byRows, r.Rank, 3)}, r.World)
		return nil
	}))
	for _, err := range errs {
		assert.ErrorContains(t, err, fmt.Sprintf("rank 0 to %s/0, rank 1 to %[1]s/1", dir))
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, files)

	// One folder may have several names.
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	require.NoError(t, ranks(2, func(r *collective.Rank) error {
		return Save(filepath.Join(dir, []string{"a", "link/a"}[r.Rank]), State{Pieces: piecesOf(byRows, r.Rank, 2)}, r.World)
	}))
	_, err = Load(filepath.Join(dir, "a"), State{Pieces: blank(piecesOf(replicated, 0, 1))}, nil)
	assert.NoError(t, err)
}

// If rank 0 cannot see a file, because the ranks do not share the folder, no checkpoint is made.
func TestAFileThatRank0DoesNotSee(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, dir, byRows, 2)
	sv, err := beginSave(dir, State{Pieces: []Piece{{Name: "new", Tensor: op.Ones(3)}}}, world{})
	require.NoError(t, err)
	require.NoError(t, func() error {
		for _, c := range []struct {
			bytes int64
			wants string
		}{{1, "rank 0 does not see"}, {2, "has 1 bytes, its rank wrote 2"}} {
			sv.index.Files = []fileInfo{{fileName(sv.name, 1, 2), c.bytes}}
			assert.ErrorContains(t, sv.verifyFiles(world{}), c.wants)
			if err := os.WriteFile(filepath.Join(sv.dir, fileName(sv.name, 1, 2)), []byte("x"), 0o666); err != nil {
				return err
			}
		}
		return nil
	}())
	sv.release()
}

func TestValuesThatDifferFromRankToRank(t *testing.T) {
	dir := t.TempDir()
	// own gives rank 2 another value of the second tensor.
	own := func(r *collective.Rank, any bool) State {
		v := op.Full([]int{2, 3}, core.IntNum(int64(r.Rank/2)), op.TensorOptions{})
		return State{Pieces: []Piece{{Name: "same", Tensor: op.Ones(3)}, {Name: "own", Tensor: v, Any: any}}}
	}
	errs := make([]error, 4)
	require.NoError(t, ranks(4, func(r *collective.Rank) error {
		errs[r.Rank] = Save(dir, own(r, false), r.World)
		return nil
	}))
	for _, err := range errs {
		assert.ErrorContains(t, err, `tensor "own": ranks 0 and 2 hold different values`)
	}
	got := op.Ones(2, 3)
	_, err := Load(dir, State{Pieces: []Piece{{Name: "own", Tensor: got}}}, nil)
	assert.ErrorContains(t, err, "is no checkpoint")

	require.NoError(t, ranks(4, func(r *collective.Rank) error { return Save(dir, own(r, true), r.World) }))
	_, err = Load(dir, State{Pieces: []Piece{{Name: "own", Tensor: got}}}, nil)
	require.NoError(t, err)
	require.NoError(t, equalPieces([]Piece{{Name: "own", Tensor: got}}, []Piece{{Name: "own", Tensor: op.Zeros(2, 3)}}), "the lowest rank's")
}
