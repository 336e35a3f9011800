package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/disk"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPiecesThatDoNotFit(t *testing.T) {
	half := func(begin, n int) []Piece {
		return []Piece{{Name: "w", Tensor: op.Ones(n, 2), Shape: []int{4, 2}, Offset: []int{begin, 0}}}
	}
	for _, c := range []struct {
		name  string
		give  func(rank int) State
		wants string
	}{
		{"hole", func(r int) State { return State{Pieces: half(3*r, 1)} }, `tensor "w" of shape [4 2]: the ranks hold 4 of its 8 elements: [[0:1, 0:2] [3:4, 0:2]]`},
		{"overlap", func(r int) State { return State{Pieces: half(r, 3)} }, "the pieces [0:3, 0:2] and [1:4, 0:2] overlap in [1:3, 0:2]"},
		{"past the end", func(r int) State { return State{Pieces: half(3*r, 2)} }, `rank 1: tensor "w" of shape [4 2]: the piece [3:5, 0:2] is out of bounds`},
		{"dtype", func(r int) State {
			return State{Pieces: []Piece{{Name: "w", Tensor: op.To(op.Ones(2), []core.DType{core.Float32, core.Float16}[r])}}}
		}, `tensor "w": rank 0 holds a piece of F32[2], rank 1 of F16[2]`},
		{"dimensions", func(r int) State {
			return State{Pieces: []Piece{{Name: "w", Tensor: op.Ones(2), Shape: []int{2, 2}, Offset: []int{0, 0}}}}
		}, "want as many dimensions"},
		{"twice", func(int) State { return State{Pieces: append(half(0, 4), half(0, 4)...)} }, `rank 0 gave the piece [0:4, 0:2] twice`},
		{"no name", func(int) State { return State{Pieces: []Piece{{Tensor: op.Ones(1)}}} }, "has no name"},
		{"nothing", func(int) State { return State{Pieces: []Piece{{Name: "w"}}} }, `tensor "w": the piece has no tensor`},
		{"values", func(r int) State {
			return State{Values: map[string]json.RawMessage{"seed": json.RawMessage(fmt.Sprint(r))}}
		}, `value "seed": rank 0 gave 0, rank 1 1`},
		{"a problem of its own", func(int) State { return State{Problem: errors.New("the disk is on fire")} }, "the disk is on fire"},
		{"no JSON", func(int) State { return State{Values: map[string]json.RawMessage{"v": json.RawMessage("{")}} }, `value "v"`},
	} {
		dir := t.TempDir()
		saveAs(t, dir, byRows, 2)
		errs := make([]error, 2)
		require.NoError(t, ranks(2, func(r *collective.Rank) error {
			errs[r.Rank] = Save(dir, c.give(r.Rank), r.World)
			return nil
		}), c.name)
		for r, err := range errs {
			if strings.HasPrefix(c.wants, "rank 1: ") && r == 1 {
				assert.ErrorContains(t, err, strings.TrimPrefix(c.wants, "rank 1: "), c.name)
				continue
			}
			assert.ErrorContains(t, err, c.wants, c.name)
		}
		_, err := Load(dir, State{Pieces: piecesOf(replicated, 0, 1)}, nil)
		assert.NoError(t, err, "%s: the checkpoint before", c.name)
	}
}

func TestWhatACheckpointDoesNotHave(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, dir, byRows, 3)
	kept := op.Full([]int{8, 3}, core.IntNum(7), op.TensorOptions{})
	pieces := []Piece{
		{Name: "even", Tensor: kept}, {Name: "odd", Tensor: op.Zeros(7, 4)},
		{Name: "absent", Tensor: op.Zeros(1)}, {Name: "absent too", Tensor: op.Zeros(1)},
	}
	_, err := Load(dir, State{Pieces: pieces, Values: map[string]json.RawMessage{"epoch": nil, "step": nil}}, nil)
	assert.ErrorContains(t, err, "no tensors named absent, absent too")
	assert.ErrorContains(t, err, "no values named epoch,")
	assert.ErrorContains(t, err, "odd (the checkpoint's is [7 2 2], wanted is [7 4])")
	v, err := core.Values[float32](kept)
	require.NoError(t, err)
	assert.Equal(t, float32(7), v[0], "a tensor that could have been loaded stays as it was")

	// An error on one rank is returned on every rank.
	errs := make([]error, 2)
	require.NoError(t, ranks(2, func(r *collective.Rank) error {
		want := blank(piecesOf(byRows, r.Rank, 2))
		if r.Rank == 1 {
			want = append(want, Piece{Name: "absent", Tensor: op.Zeros(1)})
		}
		_, errs[r.Rank] = Load(dir, State{Pieces: want}, r.World)
		for _, p := range want {
			sum, err := core.Values[float64](op.To(op.Sum(op.To(p.Tensor, core.Float64), nil, false), core.Float64))
			if err != nil || sum[0] != 0 {
				return fmt.Errorf("tensor %s was changed", p.Name)
			}
		}
		return nil
	}))
	assert.ErrorContains(t, errs[0], "rank 1: ")
	assert.ErrorContains(t, errs[1], "no tensors named absent")

	_, err = Load(t.TempDir(), State{}, nil)
	assert.ErrorContains(t, err, "is no checkpoint")
}

// Case 53: truncated, modified, removed and swapped files are detected. The error names the file and the tensor.
func TestCase53DamagedFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, path string)
		wants  string
	}{
		{"missing", func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, "the file is missing"},
		{"cut", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 100)) }, "the file has the wrong size: 100 bytes"},
		{"one bit", func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			b[len(b)-1-rand.IntN(8)] ^= 1
			require.NoError(t, os.WriteFile(path, b, 0o666))
		}, "the file is damaged: the piece"},
		{"header", func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			b[9] ^= 0x80
			require.NoError(t, os.WriteFile(path, b, 0o666))
		}, "safetensors: "},
		{"foreign", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, make([]byte, info.Size()), 0o666))
		}, "safetensors: "},
	} {
		dir := t.TempDir()
		saveAs(t, dir, byRows, 2)
		x, err := readIndex(dir)
		require.NoError(t, err)
		path := filepath.Join(dir, x.Files[1].Name)
		c.damage(t, path)
		want := blank(piecesOf(replicated, 0, 1))
		_, err = Load(dir, State{Pieces: want}, nil)
		assert.ErrorContains(t, err, c.wants, c.name)
		assert.ErrorContains(t, err, path, c.name)
		assert.ErrorContains(t, err, "tensor ", c.name)
		for _, p := range want {
			require.NoError(t, equalPieces([]Piece{p}, blank([]Piece{p})), c.name)
		}
	}
}

// Case 53: if a process is killed during a save, the folder holds a complete checkpoint, the old or the new one.
func TestCase53KilledWhileSaving(t *testing.T) {
	const child = "PLAIT_TEST_CHECKPOINT_SAVES"
	names := []string{"a", "b", "c"}
	if dir := os.Getenv(child); dir != "" {
		for step := 1; ; step++ {
			require.NoError(t, ranks(3, func(r *collective.Rank) error {
				pieces := make([]Piece, len(names))
				for i, n := range names {
					full := op.Full([]int{100_000}, core.IntNum(int64(step)), op.TensorOptions{})
					pieces[i] = Piece{Name: n, Tensor: full, Shape: []int{300_000}, Offset: []int{r.Rank * 100_000}}
				}
				return Save(dir, State{Pieces: pieces, Values: map[string]json.RawMessage{"step": json.RawMessage(fmt.Sprint(step))}}, r.World)
			}))
			fmt.Println("saved", step)
		}
	}
	dir := t.TempDir()
	for i := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestCase53KilledWhileSaving$")
		cmd.Env = append(os.Environ(), child+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = bufio.NewReader(out).ReadString('\n') // one checkpoint is complete
		require.NoError(t, err)
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		pieces := make([]Piece, len(names))
		for i, n := range names {
			pieces[i] = Piece{Name: n, Tensor: op.Zeros(300_000)}
		}
		values, err := Load(dir, State{Pieces: pieces}, nil)
		require.NoError(t, err)
		var step float64
		require.NoError(t, json.Unmarshal(values["step"], &step))
		for _, p := range pieces {
			v, err := core.Values[float32](p.Tensor)
			require.NoError(t, err)
			assert.Equal(t, float32(step), slices.Min(v), p.Name)
			assert.Equal(t, float32(step), slices.Max(v), p.Name)
		}
	}
}

// everyFault calls save once for every change that it makes to the file system. The n-th change fails. If killed, all later ones fail too,
// including removals, as if the process had ended there.
func everyFault(t *testing.T, killed bool, save func(fault error) error) (changes int) {
	t.Helper()
	for n := 0; ; n++ {
		var mu sync.Mutex
		seen := 0
		fault := fmt.Errorf("fault %d: %w", n, syscall.ENOSPC)
		end := disk.Inject(func(disk.Op) error {
			mu.Lock()
			defer mu.Unlock()
			seen++
			if seen == n+1 || killed && seen > n {
				return fault
			}
			return nil
		})
		err := save(fault)
		end()
		if seen <= n {
			require.NoError(t, err)
			return n
		}
	}
}

// Case 53: whichever change of the file system fails, or is the last before the process is killed, the folder holds a complete checkpoint:
// the old one, or the new one if the save returned without an error. The next save removes leftover files.
func TestCase53EveryFault(t *testing.T) {
	state := func(r *collective.Rank, step int) State {
		full := op.Full([]int{50}, core.IntNum(int64(step)), op.TensorOptions{})
		return State{
			Pieces: []Piece{{Name: "w", Tensor: full, Shape: []int{100}, Offset: []int{50 * r.Rank}}, {Name: "same", Tensor: op.Ones(3)}},
			Values: map[string]json.RawMessage{"step": json.RawMessage(fmt.Sprint(step))},
		}
	}
	for _, killed := range []bool{false, true} {
		dir := t.TempDir()
		step := 0
		save := func() error {
			step++
			return ranks(2, func(r *collective.Rank) error { return Save(dir, state(r, step), r.World) })
		}
		require.NoError(t, save())
		have := step
		changes := everyFault(t, killed, func(fault error) error {
			err := save()
			w := op.Zeros(100)
			values, loading := Load(dir, State{Pieces: []Piece{{Name: "w", Tensor: w}}}, nil)
			require.NoError(t, loading, "%v", fault)
			v, e := core.Values[float32](w)
			require.NoError(t, e)
			require.Equal(t, slices.Min(v), slices.Max(v), "%v", fault)
			require.Equal(t, string(values["step"]), fmt.Sprint(v[0]), "%v", fault)
			require.Contains(t, []string{fmt.Sprint(have), fmt.Sprint(step)}, string(values["step"]), "%v", fault)
			if err == nil {
				require.Equal(t, fmt.Sprint(step), string(values["step"]), "%v", fault)
			}
			require.NoError(t, json.Unmarshal(values["step"], &have))
			return err
		})
		assert.Greater(t, changes, 15)
		require.NoError(t, save())
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, files, 3, "%v", files)
	}
}

// Case 53: the same with a process that is really killed.
func TestCase53KilledAtEveryChange(t *testing.T) {
	if testing.Short() {
		t.Skip("many processes")
	}
	const child = "PLAIT_TEST_CHECKPOINT_KILLED"
	save := func(dir string, step int) error {
		full := op.Full([]int{50}, core.IntNum(int64(step)), op.TensorOptions{})
		return Save(dir, State{Pieces: []Piece{{Name: "w", Tensor: full}}}, nil)
	}
	if dir, at, ok := strings.Cut(os.Getenv(child), " "); ok {
		n, err := strconv.Atoi(at)
		require.NoError(t, err)
		disk.Inject(func(disk.Op) error {
			if n--; n < 0 {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		})
		require.NoError(t, save(dir, 2))
		return
	}
	for n := 0; ; n++ {
		dir := t.TempDir()
		require.NoError(t, save(dir, 1))
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", child, dir, n))
		ended := cmd.Run()
		w := op.Zeros(50)
		_, err := Load(dir, State{Pieces: []Piece{{Name: "w", Tensor: w}}}, nil)
		require.NoError(t, err, n)
		v, err := core.Values[float32](w)
		require.NoError(t, err)
		require.Equal(t, slices.Min(v), slices.Max(v), n)
		if ended == nil {
			require.Equal(t, float32(2), v[0])
			require.Greater(t, n, 10)
			return
		}
		require.NoError(t, save(dir, 3), n)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, 2, "%d: %v", n, files)
	}
}

// Ranks that see different checkpoints all return an error.
func TestRanksThatSeeDifferentCheckpoints(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	for i, dir := range dirs {
		require.NoError(t, Save(dir, State{Pieces: []Piece{{Name: "w", Tensor: op.Full([]int{2}, core.IntNum(int64(i+1)), op.TensorOptions{})}}}, nil))
	}
	require.NoError(t, ranks(2, func(r *collective.Rank) error {
		w := op.Zeros(2)
		_, err := Load(dirs[r.Rank], State{Pieces: []Piece{{Name: "w", Tensor: w}}}, r.World)
		assert.ErrorContains(t, err, "ranks 0 and 1 see different checkpoints")
		return equalPieces([]Piece{{Name: "w", Tensor: w}}, []Piece{{Name: "w", Tensor: op.Zeros(2)}})
	}))
}

// Loads and saves of one folder run concurrently.
func TestLoadsBesideSaves(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, dir, replicated, 1)
	done := make(chan error, 1)
	go func() {
		for range 10 {
			if err := Save(dir, State{Pieces: piecesOf(replicated, 0, 1)}, nil); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		want := piecesOf(replicated, 0, 1)
		got := blank(want)
		_, err := Load(dir, State{Pieces: got}, nil)
		require.NoError(t, err)
		require.NoError(t, equalPieces(got, want))
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
		}
	}
}

// If one rank cannot write its file no checkpoint is made, and the files of the other ranks are removed.
func TestAFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, dir, byRows, 2)
	before, err := os.ReadDir(dir)
	require.NoError(t, err)
	errs := make([]error, 2)
	require.NoError(t, ranks(2, func(r *collective.Rank) error {
		w := world{r.World}
		sv, err := beginSave(dir, State{Pieces: piecesOf(byRows, r.Rank, 2)}, w)
		if err != nil {
			return err
		}
		if r.Rank == 1 {
			if err := os.Mkdir(filepath.Join(dir, fileName(sv.name, 1, 2)), 0o777); err != nil {
				return err
			}
			defer os.Remove(filepath.Join(dir, fileName(sv.name, 1, 2)))
		}
		errs[r.Rank] = sv.finish(w)
		return nil
	}))
	assert.ErrorContains(t, errs[0], "rank 1: ")
	assert.ErrorContains(t, errs[1], "not a regular file")
	after, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := func(list []os.DirEntry) (names []string) {
		for _, f := range list {
			names = append(names, f.Name())
		}
		return names
	}
	assert.Equal(t, names(before), names(after))
}
