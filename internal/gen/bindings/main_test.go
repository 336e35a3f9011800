package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "../../.."

// A family that is no more leaves nothing behind, also in what is made of the other families' files.
func TestAFamilyDisappears(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"capi/bind", "core/op", "internal/coverage", "python/plait/_functions", "python/plait/_tensors", "python/plait/_autograd"} {
		require.NoError(t, os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join(repository, dir))))
	}
	version, err := os.ReadFile(filepath.Join(repository, "python/plait/_version.py"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "python/plait/_version.py"), version, 0o666))
	gone := filepath.Join(root, "capi/bind/gen_gone.go")
	require.NoError(t, os.WriteFile(gone, []byte("package bind\n\n// Gone returns x.\nfunc Gone(x Tensor) Tensor { return x }\n"), 0o666))
	require.NoError(t, generate(root))
	require.NoFileExists(t, gone)
	for _, name := range []string{"capi/plait.h", "capi/plait.map", "python/plait/_core.pyi"} {
		want, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), name)
	}
}

// go generate reads the files of a package in the order of their names, and fails where a generator has removed one that comes later.
func TestDirectivesStandBehindFilesThatTheyMayRemove(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(repository, "capi/bind/*.go"))
	require.NoError(t, err)
	directives := ""
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		if bytes.Contains(b, []byte("\n//go:generate ")) {
			directives = filepath.Base(name)
			break
		}
	}
	require.NotEmpty(t, directives)
	for _, name := range names {
		if ok, _ := filepath.Match("gen_*.go", filepath.Base(name)); ok {
			require.Less(t, filepath.Base(name), directives)
		}
	}
}
