package tests_go

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDoctor runs the check of the machine with few programs in the path: it names what is missing, what was found instead, and what
// Go cannot write.
func TestDoctor(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{"bash", "dirname", "env", "gcc", "go", "mkdir", "sed", "uname"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		require.NoError(t, os.Symlink(program, filepath.Join(path, name)))
	}
	python := func(script string) {
		require.NoError(t, os.WriteFile(filepath.Join(path, "python3"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	run := func(env ...string) (string, bool) {
		c := exec.Command("../internal/make/doctor")
		c.Env = append(os.Environ(), "PATH="+path, "PYENV_ROOT="+path, "CC=gcc")
		c.Env = append(c.Env, env...)
		out, err := c.CombinedOutput()
		return string(out), err == nil
	}
	old := `[ "$3" != --found ] || echo Python 3.10.14`
	fits := "[ \"$3\" = --found ] || echo \"$0\""

	python(fits)
	said, ok := run()
	require.True(t, ok, said)
	require.Empty(t, said)

	said, ok = run("CC=missing-compiler -m64")
	require.False(t, ok)
	require.Contains(t, said, "this machine lacks: a C compiler (missing-compiler). Type:\n")

	file := filepath.Join(path, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	said, ok = run("GOCACHE=" + filepath.Join(file, "cache"))
	require.False(t, ok)
	require.Equal(t, "plait: GOCACHE cannot be written: "+file+"/cache. Type: export GOCACHE=FOLDER, with one that can.\n", said)

	python(old)
	require.NoError(t, os.Remove(filepath.Join(path, "go")))
	said, ok = run()
	require.False(t, ok)
	require.Contains(t, said, "lacks: Go, Python 3.11 or newer with headers and venv (found Python 3.10.14 (python3)). Type:\n")
	require.Contains(t, said, "https://go.dev/dl")
}
