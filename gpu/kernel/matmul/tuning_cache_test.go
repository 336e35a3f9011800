package matmul

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/shader"
)

var tiles = shader.DefaultTuning(false).Tiles

func TestTuningCache(t *testing.T) {
	c := tuningCache{filepath.Join(t.TempDir(), "plait", "tuning", "x.json"), tuningHeader{"card", "1.0", "abc"}}
	one, two := productClass{64, 128, 256, 1, 5}, productClass{8, 8, 1 << 20, 3, 0}
	load := func(c tuningCache) map[productClass]choice {
		got := map[productClass]choice{}
		c.load(tiles, got)
		return got
	}
	require.Empty(t, load(c), "there is no file")
	mine := map[productClass]choice{one: {1, 2, false}}
	c.store(tiles, mine, one)
	require.Equal(t, mine, load(c))

	theirs := map[productClass]choice{one: {0, 1, false}, two: {3, 32, true}}
	c.store(tiles, theirs, one)
	require.Equal(t, map[productClass]choice{one: {1, 2, false}, two: {3, 32, true}}, theirs, "what was stored first counts")
	require.Equal(t, theirs, load(c))

	text, err := os.ReadFile(c.path)
	require.NoError(t, err)
	write := func(text string) { require.NoError(t, os.WriteFile(c.path, []byte(text), 0o644)) }
	for name, broken := range map[string]string{
		"empty": "", "cut": string(text[:len(text)/2]), "other text": "hello", "a list": "[]",
		"of other kernels": strings.ReplaceAll(string(text), "abc", "abd"), "of another driver": strings.ReplaceAll(string(text), "1.0", "1.1"),
		"of another card": strings.ReplaceAll(string(text), "card", "cart"), "strange class": strings.ReplaceAll(string(text), "64x", "?x"),
		"no such tile": strings.ReplaceAll(strings.ReplaceAll(string(text), tileName(tiles[1]), "1x1x1"), tileName(tiles[3]), "2x2x2"),
		"pieces":       strings.ReplaceAll(strings.ReplaceAll(string(text), `"pieces": 2`, `"pieces": 0`), `"pieces": 32`, `"pieces": -1`),
	} {
		write(broken)
		require.Empty(t, load(c), name)
		c.store(tiles, maps.Clone(mine), one)
		require.Equal(t, mine, load(c), name)
	}

	for _, path := range []string{"", "/dev/null/plait/x.json"} { // not writable
		c := tuningCache{path, c.header}
		kept := maps.Clone(mine)
		c.store(tiles, kept, one)
		require.Equal(t, mine, kept)
		require.Empty(t, load(c))
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(c.path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{c.path}, left)
}

// TestConcurrentTuningCacheWrites checks that the file is never torn.
func TestConcurrentTuningCacheWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			c := tuningCache{path, tuningHeader{Adapter: "card"}}
			all := map[productClass]choice{}
			for j := range 20 {
				class := productClass{i, j, 1, 1, 0}
				all[class] = choice{i % 4, 1 + j, j%2 == 1}
				c.store(tiles, all, class)
				assert.NotEmpty(t, c.read())
			}
		})
	}
	wait.Wait()
	got := map[productClass]choice{}
	c := tuningCache{path, tuningHeader{Adapter: "card"}}
	c.load(tiles, got)
	require.GreaterOrEqual(t, len(got), 20, "those of the last writer")
	for class, x := range got {
		require.Equal(t, choice{class.m % 4, 1 + class.n, class.n%2 == 1}, x)
	}
}

func TestSizeClasses(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 7: 7, 8: 8, 9: 10, 10: 10, 15: 16, 16: 16, 17: 20, 1000: 1024, 50257: 57344} {
		require.Equal(t, want, roundUp(n), n)
		require.Equal(t, want, roundUp(want), n)
	}
}
