package gpu

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/plait-ml/plait/gpu/native"
)

// The text that writes the kernels: what was measured of others does not count.
var (
	//go:embed matmul.go
	productText string
	//go:embed matmul_tiled.go
	tiledText string
	//go:embed matmul_last.go
	lastRoundText string
	//go:embed matmul_store.go
	storingText string
	//go:embed gather.go
	gatheringText string
)

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
func (t tile) name() string {
	return fmt.Sprintf("%dx%dx%d of %dx%d", t.rows, t.cols, t.depth, t.high, t.wide)
}

var tuners struct {
	sync.Mutex
	of map[tuningHeader]*tuner
}

// tunerOf returns the tuner of adapters of the same kind, with what the user's cache has for it.
func tunerOf(a native.Adapter) *tuner {
	digest := sha256.Sum256([]byte(productText + tiledText + lastRoundText + storingText + gatheringText))
	h := tuningHeader{
		Adapter: fmt.Sprintf("%s, %s %04x:%04x", a.Name, a.Backend, a.Vendor, a.Device), Driver: driverOf(a), Kernels: hex.EncodeToString(digest[:8]),
	}
	tuners.Lock()
	defer tuners.Unlock()
	if t := tuners.of[h]; t != nil {
		return t
	}
	t := &tuner{choices: map[productClass]choice{}}
	if environment().tune != 0 {
		t.cache = newTuningCache(h)
		t.cache.load(t.choices)
	}
	if tuners.of == nil {
		tuners.of = map[tuningHeader]*tuner{}
	}
	tuners.of[h] = t
	return t
}

// driverOf returns the version of the driver where the system says it; names of software adapters have theirs.
func driverOf(a native.Adapter) string {
	const nvidia = 0x10de
	if a.Vendor != nvidia {
		return ""
	}
	v, _ := os.ReadFile("/sys/module/nvidia/version")
	return strings.TrimSpace(string(v))
}

func newTuningCache(h tuningHeader) tuningCache {
	folder, err := os.UserCacheDir()
	if err != nil {
		return tuningCache{header: h}
	}
	digest := sha256.Sum256([]byte(h.Adapter + "\n" + h.Driver))
	return tuningCache{filepath.Join(folder, "plait", "tuning", hex.EncodeToString(digest[:8])+".json"), h}
}

// load adds the file's choices.
func (c *tuningCache) load(choices map[productClass]choice) {
	for class, e := range c.read() {
		for number, t := range tiles {
			if t.name() == e.Tile && e.Pieces > 0 {
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
func (c *tuningCache) store(choices map[productClass]choice, fresh productClass) {
	if c.path == "" {
		return
	}
	stored := map[productClass]choice{}
	c.load(stored)
	for class, there := range stored {
		if _, here := choices[class]; !here || class == fresh {
			choices[class] = there
		}
	}
	f := tuningFile{c.header, map[productClass]tuningEntry{}}
	for class, x := range choices {
		f.Products[class] = tuningEntry{tiles[x.number].name(), x.pieces, x.last}
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
