//go:build cgo && linux && amd64

package nvrtc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	c := &cache{folder: filepath.Join(t.TempDir(), "plait", "cuda"), bytes: 1 << 20, kept: 1 << 20}
	path := c.path("13.0", "source", []string{"a", "b"})
	require.Nil(t, c.load(path), "there is no file")
	c.store(path, []byte("program"))
	require.Equal(t, "program", string(c.load(path)))
	for _, other := range []string{
		c.path("13.1", "source", []string{"a", "b"}), c.path("13.0", "sourc", []string{"ea", "b"}), c.path("13.0", "source", []string{"ab"}),
		c.path("13.0", "source", []string{"b", "a"}), c.path("13.0", "source", nil),
	} {
		require.NotEqual(t, path, other)
	}
}

func TestDamagedCache(t *testing.T) {
	c := &cache{folder: t.TempDir(), bytes: 1 << 20, kept: 1 << 20}
	path := c.path("13.0", "source", nil)
	c.store(path, []byte("program"))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range whole {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o600))
		require.Nil(t, c.load(path), "%d bytes are left", n)
		changed := bytes.Clone(whole)
		changed[n] ^= 4
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		require.Nil(t, c.load(path), "byte %d is another", n)
	}
	c.store(path, []byte("program"))
	require.Equal(t, "program", string(c.load(path)))
}

func TestCacheWithoutFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, folder := range []string{"", file, filepath.Join(file, "below")} {
		c := &cache{folder: folder}
		path := c.path("13.0", "source", nil)
		c.store(path, []byte("program"))
		require.Nil(t, c.load(path))
	}
}

// TestCacheIsBounded stores programs of 1032 bytes, a day apart, of which the first is used again.
func TestCacheIsBounded(t *testing.T) {
	c := &cache{folder: t.TempDir(), bytes: 8 * 1032, kept: 5 * 1032}
	cubin := []byte(strings.Repeat("x", 1000))
	var paths []string
	for i := range 9 {
		path := c.path("13.0", fmt.Sprint(i), nil)
		c.stored = 1 // not due
		c.store(path, cubin)
		day := time.Now().Add(time.Duration(i-10) * 24 * time.Hour)
		require.NoError(t, os.Chtimes(path, day, day))
		paths = append(paths, path)
	}
	require.NotNil(t, c.load(paths[0]))
	c.trim()
	for i, path := range paths {
		if i == 0 || i > 4 {
			require.FileExists(t, path)
		} else {
			require.NoFileExists(t, path)
		}
	}
	c.trim()
	require.FileExists(t, paths[5], "five fit")
}

func TestCacheOfSeveralWriters(t *testing.T) {
	folder := t.TempDir()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			c := &cache{folder: folder, bytes: 4000, kept: 2000} // as another process has it
			for i := range 100 {
				path := c.path("13.0", fmt.Sprint(i%7), nil)
				want := strings.Repeat(fmt.Sprint(i%7), 500)
				if got := c.load(path); got != nil && string(got) != want {
					t.Errorf("another program: %.20q", got)
				}
				c.store(path, []byte(want))
				c.trim()
			}
		})
	}
	group.Wait()
}

// TestCompileIsCached replaces a stored program, which then comes instead of the compiled one, and damages it.
func TestCompileIsCached(t *testing.T) {
	c, err := open()
	if err != nil {
		t.Skip(err)
	}
	stored, err := programs()
	require.NoError(t, err)
	before := stored.folder
	defer func() { stored.folder = before }()
	stored.folder = t.TempDir()
	const source = `extern "C" __global__ void f(int *x) { x[0] = 1; }`
	cubin, err := Compile(source, "f", 90)
	require.NoError(t, err)
	options, err := c.options(90, nil)
	require.NoError(t, err)
	path := stored.path(fmt.Sprintf("%d.%d", c.major, c.minor), source, options)
	require.FileExists(t, path)
	stored.store(path, []byte("stored"))
	again, err := Compile(source, "f", 90)
	require.NoError(t, err)
	require.Equal(t, "stored", string(again))
	require.NoError(t, os.WriteFile(path, []byte("damaged"), 0o600))
	again, err = Compile(source, "f", 90)
	require.NoError(t, err)
	require.Equal(t, len(cubin), len(again))
	_, err = Compile(source, "f", 90, "--fmad=false")
	require.NoError(t, err)
	entries, err := os.ReadDir(stored.folder)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}
