package disk

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// Whatever fails, the file holds what it held or what was written, and a call that returns no error has written.
func TestReplaceUnderEveryFault(t *testing.T) {
	for _, killed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, Replace(path, text("old")))
		for n := 0; ; n++ {
			seen := 0
			broken := errors.New("broken")
			end := Inject(func(Op) error {
				seen++
				if seen == n+1 || killed && seen > n {
					return broken
				}
				return nil
			})
			err := Replace(path, text("new"))
			end()
			got, e := os.ReadFile(path)
			require.NoError(t, e)
			if seen <= n {
				require.NoError(t, err)
				require.Equal(t, "new", string(got))
				break
			}
			require.Contains(t, []string{"old", "new"}, string(got))
			if err == nil {
				require.Equal(t, "new", string(got))
			}
			require.NoError(t, Replace(path, text("old")))
			require.Equal(t, []string{"file"}, namesIn(t, filepath.Dir(path)), "what the dead writer left")
		}
	}
}

func TestReplaceLeavesTheFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	others := []string{"file.00000000.tmp.txt", "file.tmp", "files.00000000.tmp", "file.0000000g.tmp"}
	for _, name := range others {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	require.NoError(t, os.WriteFile(path+".00000000.tmp", nil, 0o666))
	alive, err := createBeside(path)
	require.NoError(t, err)
	defer alive.Close()
	require.NoError(t, Replace(path, text("new")))
	assert.ElementsMatch(t, append(others, "file", filepath.Base(alive.Name())), namesIn(t, dir))
}

func TestAcquire(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, LockName)
	first, err := Acquire(dir, "a save")
	require.NoError(t, err)
	_, err = Acquire(dir, "another save")
	assert.ErrorAs(t, err, new(*HeldError))
	assert.ErrorContains(t, err, fmt.Sprintf("%s is being written to by a save of process %d on ", dir, os.Getpid()))
	first.Release()
	first.Release()
	assert.NoFileExists(t, path)

	me := self("a save")
	for name, c := range map[string]struct {
		change func(h *holder)
		wants  string
	}{
		"a process that is gone":    {func(h *holder) { h.PID, h.Start = 1<<22+1, "1" }, ""},
		"the number was used again": {func(h *holder) { h.Start = "1" }, ""},
		"the machine started again": {func(h *holder) { h.Boot = "other" }, ""},
		"another machine":           {func(h *holder) { h.Boot, h.Host = "other", "elsewhere" }, "on elsewhere, since "},
	} {
		h := me
		c.change(&h)
		b, err := json.Marshal(h)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, 0o666))
		lock, err := Acquire(dir, "a save")
		if c.wants == "" {
			require.NoError(t, err, name)
			lock.Release()
			continue
		}
		assert.ErrorContains(t, err, c.wants, name)
		assert.ErrorContains(t, err, "if that process is gone, remove "+path, name)
		require.NoError(t, os.Remove(path))
	}
	require.NoError(t, os.WriteFile(path, []byte("{half of a"), 0o666))
	lock, err := Acquire(dir, "a save")
	require.NoError(t, err)
	lock.Release()
}

// A full disk has no room for the holder's name: no empty file stays.
func TestLockThatCannotBeWritten(t *testing.T) {
	dir, locks, full := t.TempDir(), 0, errors.New("no space left on device")
	defer Inject(func(op Op) error {
		if op.Name == "lock" {
			locks++
		}
		if op.Name == "lock" && locks == 2 {
			return full
		}
		return nil
	})()
	_, err := Acquire(dir, "a save")
	require.ErrorIs(t, err, full)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	lock, err := Acquire(dir, "a save")
	require.NoError(t, err)
	lock.Release()
}

// On a file system that has no locks the file alone counts.
func TestClaimWithoutLocks(t *testing.T) {
	if processStart(os.Getpid()) == "" {
		t.Skip("nobody says when processes began")
	}
	path := filepath.Join(t.TempDir(), LockName)
	for name, c := range map[string]struct {
		change func(h *holder)
		held   bool
	}{
		"a process that lives":      {func(*holder) {}, true},
		"a process that is gone":    {func(h *holder) { h.PID = 1<<22 + 1 }, false},
		"the number was used again": {func(h *holder) { h.Start = "1" }, false},
	} {
		h := self("a save")
		c.change(&h)
		b, err := json.Marshal(h)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, 0o666))
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		assert.Equal(t, c.held, claim(file, filepath.Dir(path), "a save", errors.ErrUnsupported) != nil, name)
		require.NoError(t, file.Close())
	}
}

// A holder that has locked the file writes its name a moment later. Until then the file is empty, or names a process that is gone.
func TestAcquireWaitsForTheNameOfTheHolder(t *testing.T) {
	for _, before := range []string{"", `{"host": "here", "pid": 1, "start": "0", "boot": "` + bootOf("here") + `", "what": "an old save"}`} {
		dir := t.TempDir()
		first, err := Acquire(dir, "a save")
		require.NoError(t, err)
		name, err := os.ReadFile(first.file.Name())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(first.file.Name(), []byte(before), 0o666))
		done := make(chan error)
		go func() {
			_, err := Acquire(dir, "another save")
			done <- err
		}()
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, os.WriteFile(first.file.Name(), name, 0o666))
		assert.ErrorContains(t, <-done, fmt.Sprintf("a save of process %d on ", os.Getpid()))
		first.Release()
	}
}

// A process has the lock until it dies.
func TestAProcessThatDiesGivesUpItsLock(t *testing.T) {
	const child = "PLAIT_TEST_DISK_LOCK"
	if dir := os.Getenv(child); dir != "" {
		_, err := Acquire(dir, "a save")
		fmt.Println("acquired:", err)
		_, _ = io.ReadAll(os.Stdin) // for ever
		return
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"="+dir)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "acquired: <nil>", strings.TrimSpace(line))
	_, err = Acquire(dir, "a save")
	assert.ErrorContains(t, err, fmt.Sprintf("of process %d on ", cmd.Process.Pid))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	lock, err := Acquire(dir, "a save")
	require.NoError(t, err)
	lock.Release()
}
