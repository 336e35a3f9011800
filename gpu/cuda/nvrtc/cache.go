//go:build cgo && linux && amd64

package nvrtc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/disk"
)

const (
	// cacheBytes is the size that the cache has at most, if one process at a time writes to it. Where it is past that, the programs that were
	// not used for longest go, until cacheKept is left.
	cacheBytes = 512 << 20
	cacheKept  = 384 << 20
	// A process looks at the size at its first new program, and then each time it has stored trimEvery of them.
	trimEvery = 64
	// usedAfter is how old the time of the last use gets before another use renews it.
	usedAfter = time.Hour
)

// A cache is a folder of compiled programs, one in a file. A file is a digest of the program and the program, so that one that is damaged or
// short is found out, and compiled again. Files are replaced as a whole. If the folder cannot be written, programs last as long as the
// process.
type cache struct {
	folder string // empty for none
	bytes  int64  // cacheBytes and cacheKept
	kept   int64
	mu     sync.Mutex
	stored int // programs of this process
}

// programs is the cache in the user's cache folder; PLAIT_CUDA_CACHE=0 turns it off.
var programs = sync.OnceValues(func() (*cache, error) {
	c := &cache{bytes: cacheBytes, kept: cacheKept}
	on, err := core.EnvNumber("PLAIT_CUDA_CACHE", 0, 1, 1)
	if folder, none := os.UserCacheDir(); on == 1 && none == nil {
		c.folder = filepath.Join(folder, "plait", "cuda")
	}
	return c, err
})

// path returns the file of a program: a digest of everything that it depends on.
func (c *cache) path(compiler, source string, options []string) string {
	digest := sha256.New()
	for _, part := range append([]string{compiler, source}, options...) {
		fmt.Fprintf(digest, "%d %s", len(part), part)
	}
	return filepath.Join(c.folder, hex.EncodeToString(digest.Sum(nil)))
}

// load returns the program in a file, or nil.
func (c *cache) load(path string) []byte {
	if c.folder == "" {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) <= sha256.Size {
		return nil
	}
	cubin := raw[sha256.Size:]
	if digest := sha256.Sum256(cubin); !bytes.Equal(digest[:], raw[:sha256.Size]) {
		return nil
	}
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > usedAfter {
		now := time.Now()
		_ = os.Chtimes(path, now, now) // without it the program counts as unused, no more
	}
	return cubin
}

// store writes a program to a file.
func (c *cache) store(path string, cubin []byte) {
	if c.folder == "" || disk.MakeFolder(c.folder) != nil {
		return
	}
	digest := sha256.Sum256(cubin)
	err := disk.Replace(path, func(w io.Writer) error {
		_, err := w.Write(append(digest[:], cubin...))
		return err
	})
	if err != nil {
		return
	}
	c.mu.Lock()
	due := c.stored%trimEvery == 0
	c.stored++
	c.mu.Unlock()
	if due {
		c.trim()
	}
}

// trim deletes the programs that were not used for longest, if the cache is too large.
func (c *cache) trim() {
	var files []fs.FileInfo
	var total int64
	entries, _ := os.ReadDir(c.folder)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
			total += info.Size()
		}
	}
	if total <= c.bytes {
		return
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if total <= c.kept {
			return
		}
		if disk.Remove(filepath.Join(c.folder, f.Name())) == nil {
			total -= f.Size()
		}
	}
}
