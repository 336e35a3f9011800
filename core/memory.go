package core

import "sync"

// A Category says what memory is used for. Memory statistics are kept per category.
type Category uint8

// The categories of memory.
const (
	Activation Category = iota // results of operations; the default
	Parameter
	Gradient
	OptimizerState
	Communication
	Buffer    // of modules, such as running averages
	Workspace // temporary memory of kernels
	External  // memory owned by other code, such as NumPy; not counted
	numCategories
)

var categoryNames = [...]string{"activation", "parameter", "gradient", "optimizer", "communication", "buffer", "workspace", "external"}

func (c Category) String() string { return categoryNames[c] }

// Categories lists the counted categories.
func Categories() []Category {
	return []Category{Activation, Parameter, Gradient, OptimizerState, Communication, Buffer, Workspace}
}

// Counters count the memory of one stream. A stream gets them once, from [NewCounters].
type Counters struct {
	device *deviceGauges
	rank   *gauges
}

// NewCounters returns the counters for streams of the given rank on the device with the given ordinal.
func NewCounters(ordinal, rank int) Counters {
	d := gaugesOf(ordinal)
	return Counters{d, d.rank(rank)}
}

// accounted rounds a size up to the allocation granularity of 64 bytes.
func accounted(bytes int) int64 { return int64(bytes+63) &^ 63 }

// A gauge is a number of bytes and its peak.
type gauge struct{ current, peak int64 }

func (g *gauge) add(n int64) {
	g.current += n
	g.peak = max(g.peak, g.current)
}

// gauges has one gauge per category and, last, the total.
type gauges [numCategories + 1]gauge

func (g *gauges) add(c Category, n int64) {
	g[c].add(n)
	g[numCategories].add(n)
}

// deviceGauges count the memory on one device, in total and per rank.
type deviceGauges struct {
	mu    sync.Mutex
	all   gauges
	ranks map[int]*gauges
}

func (d *deviceGauges) rank(r int) *gauges {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.ranks[r]
	if g == nil {
		g = new(gauges)
		d.ranks[r] = g
	}
	return g
}

var (
	allGaugesMu sync.Mutex
	allGauges   = map[int]*deviceGauges{}
)

func gaugesOf(ordinal int) *deviceGauges {
	allGaugesMu.Lock()
	defer allGaugesMu.Unlock()
	d := allGauges[ordinal]
	if d == nil {
		d = &deviceGauges{ranks: map[int]*gauges{}}
		allGauges[ordinal] = d
	}
	return d
}

// count adds n bytes; n may be negative.
func (c Counters) count(cat Category, n int64) {
	if cat == External {
		return
	}
	c.device.mu.Lock()
	c.device.all.add(cat, n)
	c.rank.add(cat, n)
	c.device.mu.Unlock()
}

// CountWorkspace adds n bytes of kernels' workspace; n may be negative.
func (c Counters) CountWorkspace(n int) {
	if n < 0 {
		c.count(Workspace, -accounted(-n))
		return
	}
	c.count(Workspace, accounted(n))
}

// A Usage is the number of bytes in use now and the highest number since the last [ResetPeak].
type Usage struct{ Current, Peak int }

// usage reads gauge index of the gauges that pick selects.
func usage(dev Device, pick func(d *deviceGauges) *gauges, index Category) Usage {
	d := gaugesOf(dev.Ordinal())
	g := pick(d)
	d.mu.Lock()
	defer d.mu.Unlock()
	return Usage{int(g[index].current), int(g[index].peak)}
}

func allRanks(d *deviceGauges) *gauges { return &d.all }

func ofRank(r int) func(d *deviceGauges) *gauges {
	return func(d *deviceGauges) *gauges { return d.rank(r) }
}

// MemoryUsage returns the bytes in use on device d by all ranks and categories.
func MemoryUsage(d Device) Usage { return usage(d, allRanks, numCategories) }

// CategoryUsage returns the bytes of one category in use on device d by all ranks.
func CategoryUsage(d Device, c Category) Usage { return usage(d, allRanks, c) }

// RankUsage returns the bytes in use on device d by one rank.
func RankUsage(d Device, rank int) Usage { return usage(d, ofRank(rank), numCategories) }

// RankCategoryUsage returns the bytes of one category in use on device d by one rank.
func RankCategoryUsage(d Device, rank int, c Category) Usage { return usage(d, ofRank(rank), c) }

// ResetPeak sets every peak of device d to the bytes in use now.
func ResetPeak(dev Device) {
	d := gaugesOf(dev.Ordinal())
	d.mu.Lock()
	defer d.mu.Unlock()
	reset := func(g *gauges) {
		for i := range g {
			g[i].peak = g[i].current
		}
	}
	reset(&d.all)
	for _, g := range d.ranks {
		reset(g)
	}
}
