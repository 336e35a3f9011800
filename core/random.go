package core

import "sync"

// DefaultSeed is the seed of generators that were never seeded.
const DefaultSeed = 0

// A Generator hands out positions in a counter-based (Philox) random sequence: a draw of n numbers takes the counters
// [offset, offset+ceil(n/4)) of the seed's sequence. The numbers depend on seed and position alone, never on timing, on
// the device or on the number of threads.
type Generator struct {
	mu     sync.Mutex
	seed   uint64
	offset uint64
}

// NewGenerator returns a generator at the start of the seed's sequence.
func NewGenerator(seed uint64) *Generator { return &Generator{seed: seed} }

// Next reserves n counters (four 32-bit words each) and returns the seed and the first counter.
func (g *Generator) Next(n uint64) (seed, offset uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := CurrentRecording(); r != nil {
		r.noteDraw(g, g.seed, g.offset+n, true)
	}
	offset = g.offset
	g.offset += n
	return g.seed, offset
}

// Seed moves the generator to the start of another sequence.
func (g *Generator) Seed(seed uint64) {
	refuseRecording(seedsInStep)
	g.SetState(seed, 0)
}

// State returns the seed and the next counter.
func (g *Generator) State() (seed, offset uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seed, g.offset
}

// SetState moves the generator to a state that [Generator.State] returned.
func (g *Generator) SetState(seed, offset uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := CurrentRecording(); r != nil {
		r.noteDraw(g, seed, offset, false)
	}
	g.seed, g.offset = seed, offset
}

// Fork returns a generator whose sequence depends only on the state of g and on key. Its numbers are independent of g's and of forks with
// other keys. g does not advance.
func (g *Generator) Fork(key uint64) *Generator {
	seed, offset := g.State()
	return NewGenerator(mix(mix(seed^0x9e3779b97f4a7c15)+mix(offset+0xd1b54a32d192ed03)) ^ mix(key+0x8cb92ba72f3d8dd7))
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Generator returns the rank's generator for device d. All generators start from the rank's seed, so the same draws give the same numbers
// on every device, unless [ManualSeedKind] set another seed. The meta device uses the generator of the rank's home device.
func (c *Context) Generator(d Device) *Generator {
	if d.Kind() == MetaKind {
		if home, err := c.Home(); err == nil {
			d = home
		}
	}
	i := d.Ordinal()
	if g := c.random.generators.Load(); g != nil && i < len(*g) && (*g)[i] != nil {
		return (*g)[i]
	}
	c.random.mu.Lock()
	defer c.random.mu.Unlock()
	var old []*Generator
	if g := c.random.generators.Load(); g != nil {
		old = *g
	}
	if i < len(old) && old[i] != nil {
		return old[i]
	}
	grown := make([]*Generator, max(len(old), i+1))
	copy(grown, old)
	seed, own := c.random.kinds[d.Kind()]
	if !own {
		seed = c.random.seed
	}
	grown[i] = NewGenerator(seed)
	c.random.generators.Store(&grown)
	return grown[i]
}

// ManualSeed restarts every generator of the current rank or worker from seed.
func ManualSeed(seed uint64) {
	c := CurrentContext()
	c.random.mu.Lock()
	defer c.random.mu.Unlock()
	c.random.seed, c.random.kinds = seed, nil
	if g := c.random.generators.Load(); g != nil {
		for _, x := range *g {
			if x != nil {
				x.Seed(seed)
			}
		}
	}
}

// ManualSeedKind restarts the current rank's or worker's generators for devices of one kind from seed. It also applies to devices opened
// later.
func ManualSeedKind(kind string, seed uint64) {
	kind = DeviceKind(kind)
	c := CurrentContext()
	c.random.mu.Lock()
	defer c.random.mu.Unlock()
	if c.random.kinds == nil {
		c.random.kinds = map[string]uint64{}
	}
	c.random.kinds[kind] = seed
	g := c.random.generators.Load()
	if g == nil {
		return
	}
	for _, d := range OpenDevices() {
		if i := d.Ordinal(); d.Kind() == kind && i < len(*g) && (*g)[i] != nil {
			(*g)[i].Seed(seed)
		}
	}
}
