//go:build cgo && linux && amd64

package library_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/cuda/internal/library"
)

func TestOpen(t *testing.T) {
	h, path, err := library.Open("libnone.so.9", "libm.so.6")
	require.NoError(t, err)
	require.Equal(t, "libm.so.6", filepath.Base(path))
	require.True(t, filepath.IsAbs(path), path)
	p, err := h.Symbol("cos")
	require.NoError(t, err)
	require.NotNil(t, p)
	_, err = h.Symbol("no_such_function")
	require.ErrorContains(t, err, "no_such_function")
	_, _, err = library.Open("libnone.so.9", "libnone.so.8")
	require.ErrorContains(t, err, "libnone.so.9")
}

// TestFolders looks for a library that the process has not loaded in folders: one given, and one of a virtual environment. What is not a
// library there does not hide the system's, and is what the error is about where there is none.
func TestFolders(t *testing.T) {
	given, environment := t.TempDir(), t.TempDir()
	inside := filepath.Join(environment, "lib", "python3.11", "site-packages", "nvidia", "cu13", "lib")
	require.NoError(t, os.MkdirAll(inside, 0o777))
	t.Setenv("VIRTUAL_ENV", environment)
	library.SetFolders([]string{given, filepath.Join(given, "none")})
	defer library.SetFolders(nil)

	_, system, err := library.Open("libutil.so.1")
	require.NoError(t, err)
	raw, err := os.ReadFile(system)
	require.NoError(t, err)
	write := func(folder, name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o777))
	}
	write(inside, "libplait-one.so.1", string(raw))
	_, path, err := library.Open("libplait-one.so.1")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(inside, "libplait-one.so.1"), path)

	write(given, "libplait-two.so.2", string(raw))
	write(inside, "libplait-two.so.3", string(raw))
	write(inside, "libplait-two.so.2", string(raw))
	_, path, err = library.Open("libplait-two.so.3", "libplait-two.so.2")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(inside, "libplait-two.so.3"), path, "the version counts before the folder")

	write(given, "libplait-three.so.1", "not a library")
	_, _, err = library.Open("libplait-three.so.1")
	require.ErrorContains(t, err, filepath.Join(given, "libplait-three.so.1"))
	write(inside, "libplait-three.so.1", string(raw))
	_, path, err = library.Open("libplait-three.so.1")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(inside, "libplait-three.so.1"), path)
}

func TestLoadedFirst(t *testing.T) {
	folder := t.TempDir()
	library.SetFolders([]string{folder})
	defer library.SetFolders(nil)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "libc.so.6"), []byte("not a library"), 0o777))
	_, path, err := library.Open("libc.so.6")
	require.NoError(t, err)
	require.NotEqual(t, folder, filepath.Dir(path))
}
