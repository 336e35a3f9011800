package core

import (
	"sync"
	"sync/atomic"
)

// A Category says what memory is used for, in the statistics.
type Category uint8

// The categories of memory.
const (
	Activation Category = iota // results of operations; the default
	Parameter
	Gradient
	OptimizerState
	Communication
	Buffer   // of modules
	External // memory of somebody else, such as NumPy's; not counted
	numCategories
)

var categoryNames = [...]string{"activation", "parameter", "gradient", "optimizer", "communication", "buffer", "external"}

func (c Category) String() string { return categoryNames[c] }

// Categories lists the counted categories.
func Categories() []Category {
	return []Category{Activation, Parameter, Gradient, OptimizerState, Communication, Buffer}
}

// An account is a storage's entry in the statistics.
type account struct {
	counters Counters
	category Category
	bytes    int64
}

// Counters are where the memory of one stream is counted. A stream gets them once, from [NewCounters].
type Counters struct{ device, rank *gauges }

// NewCounters returns the counters for streams of the given rank on the device with the given ordinal.
func NewCounters(ordinal, rank int) Counters {
	return Counters{lookup(&deviceSums, ordinal), lookup(&gaugeTable, gaugeKey{ordinal, rank})}
}

// accounted rounds a size up to the allocation granularity of 64 bytes.
func accounted(bytes int) int64 { return int64(bytes+63) &^ 63 }

type gauge struct{ current, peak atomic.Int64 }

func (g *gauge) add(n int64) {
	now := g.current.Add(n)
	for n > 0 {
		p := g.peak.Load()
		if now <= p || g.peak.CompareAndSwap(p, now) {
			return
		}
	}
}

// gauges of one (device, rank): per category and, last, in total.
type gauges [numCategories + 1]gauge

type gaugeKey struct{ device, rank int }

var (
	gaugeMu    sync.Mutex
	gaugeTable atomic.Pointer[map[gaugeKey]*gauges]
	deviceSums atomic.Pointer[map[int]*gauges]
)

func lookup[K comparable](table *atomic.Pointer[map[K]*gauges], key K) *gauges {
	if m := table.Load(); m != nil {
		if g := (*m)[key]; g != nil {
			return g
		}
	}
	gaugeMu.Lock()
	defer gaugeMu.Unlock()
	grown := map[K]*gauges{}
	if m := table.Load(); m != nil {
		if g := (*m)[key]; g != nil {
			return g
		}
		for k, v := range *m {
			grown[k] = v
		}
	}
	g := new(gauges)
	grown[key] = g
	table.Store(&grown)
	return g
}

func (a *account) add()    { a.count(a.bytes) }
func (a *account) remove() { a.count(-a.bytes) }

func (a *account) count(n int64) {
	if a.category == External {
		return
	}
	for _, g := range [...]*gauges{a.counters.device, a.counters.rank} {
		g[a.category].add(n)
		g[numCategories].add(n)
	}
}

// A Usage is a number of bytes now and at its highest since the last [ResetPeak].
type Usage struct{ Current, Peak int }

func (g *gauge) usage() Usage { return Usage{int(g.current.Load()), int(g.peak.Load())} }

// MemoryUsage returns the bytes in use on device d by all ranks and categories.
func MemoryUsage(d Device) Usage { return lookup(&deviceSums, d.Ordinal())[numCategories].usage() }

// CategoryUsage returns the bytes of one category in use on device d by all ranks.
func CategoryUsage(d Device, c Category) Usage { return lookup(&deviceSums, d.Ordinal())[c].usage() }

// RankUsage returns the bytes in use on device d by one rank.
func RankUsage(d Device, rank int) Usage {
	return lookup(&gaugeTable, gaugeKey{d.Ordinal(), rank})[numCategories].usage()
}

// RankCategoryUsage returns the bytes of one category in use on device d by one rank.
func RankCategoryUsage(d Device, rank int, c Category) Usage {
	return lookup(&gaugeTable, gaugeKey{d.Ordinal(), rank})[c].usage()
}

// ResetPeak sets every peak of device d to the bytes in use now.
func ResetPeak(d Device) {
	reset := func(g *gauges) {
		for i := range g {
			g[i].peak.Store(g[i].current.Load())
		}
	}
	reset(lookup(&deviceSums, d.Ordinal()))
	if m := gaugeTable.Load(); m != nil {
		for k, g := range *m {
			if k.device == d.Ordinal() {
				reset(g)
			}
		}
	}
}
