package matmul

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/plait-ml/plait/gpu/shader"
)

// kernels is the source of the programs. A digest of it is stored with the measurements, because they hold for this source only.
//
//go:embed matmul.go tiled.go tile_load.go tile_loop.go last_wave.go epilogue.go gather.go
var kernels embed.FS

// kernelsDigest identifies the source.
var kernelsDigest = sync.OnceValue(func() string {
	digest := sha256.New()
	files, _ := kernels.ReadDir(".")
	for _, f := range files {
		text, _ := kernels.ReadFile(f.Name())
		digest.Write(text)
	}
	return hex.EncodeToString(digest.Sum(nil)[:8])
})

// A tuningCache is the file that keeps choices between processes, one for each kind of adapter. A file that is broken or of other kernels
// is ignored and overwritten. If the file cannot be written, choices last as long as the process. A file is replaced as a whole. If two
// processes write at the same time, the choices of one are lost and are measured again.
type tuningCache struct {
	path   string // empty for none
	header tuningHeader
}

// A tuningHeader says what the measurements are valid for.
type tuningHeader struct {
	Adapter string `json:"adapter"`
	Driver  string `json:"driver"`
	Kernels string `json:"kernels"`
}

type tuningFile struct {
	tuningHeader
	Products map[productClass]tuningEntry `json:"products"`
}

// A tuningEntry is a choice in the file.
type tuningEntry struct {
	Tile   string `json:"tile"`
	Pieces int    `json:"pieces"`
	Last   bool   `json:"last,omitempty"`
}

const classFormat = "%dx%dx%d, %d, form %d"

// MarshalText implements [encoding.TextMarshaler]; classes are keys of the file.
func (c productClass) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, classFormat, c.m, c.n, c.k, c.count, c.layout), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *productClass) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), classFormat, &c.m, &c.n, &c.k, &c.count, &c.layout)
	return err
}

// tileName returns the name of a tile in the file.
func tileName(t shader.Tile) string {
	return fmt.Sprintf("%dx%dx%d of %dx%d", t.Rows, t.Cols, t.K, t.ThreadRows, t.ThreadCols)
}

// tuners holds a tuner for each kind of GPU, and the tuner of each GPU.
var tuners struct {
	sync.Mutex
	kinds map[tuningHeader]*tuner
	of    sync.Map // by *shader.Device
}

// tunerOf returns the tuner for GPUs of this kind. A new one starts with the choices in the user's cache.
func tunerOf(gpu *shader.Device) *tuner {
	if t, ok := tuners.of.Load(gpu); ok {
		return t.(*tuner)
	}
	h := tuningHeader{
		Adapter: gpu.Identity, Driver: gpu.Driver, Kernels: kernelsDigest(),
	}
	tuners.Lock()
	defer tuners.Unlock()
	t := tuners.kinds[h]
	if t == nil {
		t = &tuner{choices: map[productClass]choice{}}
		if gpu.Stored {
			t.cache = newTuningCache(h)
			t.cache.load(gpu.Tiles, t.choices)
		}
		if tuners.kinds == nil {
			tuners.kinds = map[tuningHeader]*tuner{}
		}
		tuners.kinds[h] = t
	}
	tuners.of.Store(gpu, t)
	return t
}

func newTuningCache(h tuningHeader) tuningCache {
	folder, err := os.UserCacheDir()
	if err != nil {
		return tuningCache{header: h}
	}
	digest := sha256.Sum256([]byte(fmt.Sprintf(`%s
%s`, h.Adapter, h.Driver)))
	return tuningCache{filepath.Join(folder, "plait", "tuning", hex.EncodeToString(digest[:8])+".json"), h}
}

// load adds the choices in the file to choices.
func (c *tuningCache) load(tiles []shader.Tile, choices map[productClass]choice) {
	for class, e := range c.read() {
		for number, t := range tiles {
			if tileName(t) == e.Tile && e.Pieces > 0 {
				choices[class] = choice{number, e.Pieces, e.Last}
			}
		}
	}
}

// read returns the entries of the file; nil if it is broken or its header differs.
func (c *tuningCache) read() map[productClass]tuningEntry {
	text, err := os.ReadFile(c.path)
	var f tuningFile
	if err != nil || json.Unmarshal(text, &f) != nil || f.tuningHeader != c.header {
		return nil
	}
	return f.Products
}

// store writes the choices to the file, together with those that other processes have stored. A stored choice replaces one in choices if
// the class is new here: absent from choices, or fresh.
func (c *tuningCache) store(tiles []shader.Tile, choices map[productClass]choice, fresh productClass) {
	if c.path == "" {
		return
	}
	stored := map[productClass]choice{}
	c.load(tiles, stored)
	for class, there := range stored {
		if _, here := choices[class]; !here || class == fresh {
			choices[class] = there
		}
	}
	f := tuningFile{c.header, map[productClass]tuningEntry{}}
	for class, x := range choices {
		f.Products[class] = tuningEntry{tileName(tiles[x.tile]), x.pieces, x.lastWave}
	}
	text, err := json.MarshalIndent(f, "", "  ")
	folder := filepath.Dir(c.path)
	if err != nil || os.MkdirAll(folder, 0o755) != nil {
		return
	}
	w, err := os.CreateTemp(folder, "new-*")
	if err != nil {
		return
	}
	_, err = w.Write(text)
	if closed := w.Close(); err != nil || closed != nil || os.Rename(w.Name(), c.path) != nil {
		os.Remove(w.Name())
	}
}
