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

// kernels is the text that writes the programs of products: what was measured of others does not count.
//
//go:embed matmul.go tiled.go tile_load.go tile_loop.go last_wave.go epilogue.go gather.go
var kernels embed.FS

// kernelsDigest identifies that text.
var kernelsDigest = sync.OnceValue(func() string {
	digest := sha256.New()
	files, _ := kernels.ReadDir(".")
	for _, f := range files {
		text, _ := kernels.ReadFile(f.Name())
		digest.Write(text)
	}
	return hex.EncodeToString(digest.Sum(nil)[:8])
})

// A tuningCache is the file in which choices outlive the process: one for each kind of adapter. What is not such a file is ignored
// and written again, and where none can be written there is none. A file is replaced as a whole, so that processes that write at a time
// leave that of one; what the other measured is then measured again.
type tuningCache struct {
	path   string // empty for none
	header tuningHeader
}

// A tuningHeader says what was measured.
type tuningHeader struct {
	Adapter string `json:"adapter"`
	Driver  string `json:"driver"`
	Kernels string `json:"kernels"`
}

type tuningFile struct {
	tuningHeader
	Products map[productClass]tuningEntry `json:"products"`
}

// A tuningEntry is a choice.
type tuningEntry struct {
	Tile   string `json:"tile"`
	Pieces int    `json:"pieces"`
	Last   bool   `json:"last,omitempty"`
}

const classFormat = "%dx%dx%d, %d, form %d"

// MarshalText makes a class a key of the file.
func (c productClass) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, classFormat, c.m, c.n, c.k, c.count, c.form), nil
}

// UnmarshalText reads one.
func (c *productClass) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), classFormat, &c.m, &c.n, &c.k, &c.count, &c.form)
	return err
}

// name returns what the file calls a tile.
func tileName(t shader.Tile) string {
	return fmt.Sprintf("%dx%dx%d of %dx%d", t.Rows, t.Cols, t.K, t.High, t.Wide)
}

// tuners holds a tuner for each kind of GPU, and which one each GPU has.
var tuners struct {
	sync.Mutex
	kinds map[tuningHeader]*tuner
	of    sync.Map // by *target
}

// tunerOf returns the tuner of GPUs of the same kind, with what the user's cache has for it.
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

// load adds the file's choices.
func (c *tuningCache) load(tiles []shader.Tile, choices map[productClass]choice) {
	for class, e := range c.read() {
		for number, t := range tiles {
			if tileName(t) == e.Tile && e.Pieces > 0 {
				choices[class] = choice{number, e.Pieces, e.Last}
			}
		}
	}
}

// read returns the file's entries; none where it is another's, or broken.
func (c *tuningCache) read() map[productClass]tuningEntry {
	text, err := os.ReadFile(c.path)
	var f tuningFile
	if err != nil || json.Unmarshal(text, &f) != nil || f.tuningHeader != c.header {
		return nil
	}
	return f.Products
}

// store writes the choices, together with what other processes have stored. For what they measured first, a class that is new here
// too, theirs is the choice from now on.
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
		f.Products[class] = tuningEntry{tileName(tiles[x.number]), x.pieces, x.last}
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
