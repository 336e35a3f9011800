package gpu

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

const (
	// loadAhead is about how long what a stream has on a GPU made of software may take, and loadFull each of its batches. Nobody
	// can take back what such a GPU was given, and the end of a process waits for it.
	loadAhead = 800 * time.Millisecond
	loadFull  = loadAhead / inFlight
	// leastLoad is how many elements a call stands for at least.
	leastLoad = 1 << 12
	// An element is taken to cost firstPace nanoseconds before anything was measured, and never less or more than the others.
	leastPace, firstPace, mostPace = 1, 10, 1000
	// leastSpan is how long batches take together that say something about elements: the owner may see several end at once.
	leastSpan = 50 * time.Millisecond
)

// A softwarePacing estimates how long calls take on a GPU made of software: the number of elements that a call states, times the time per
// element of recent batches.
type softwarePacing struct {
	pace     atomic.Uint64 // nanoseconds, the bits of a float64; 0 before it is known
	elements int           // of batches that ended since it was; the owner's
	took     time.Duration // by them
}

// elements returns about how many elements a call goes through.
func elements(c *core.Call) int {
	if c.Fn != nil || c.Mark != nil {
		return 0
	}
	return max(c.Work, leastLoad)
}

// nanoseconds returns the estimated cost of an element.
func (l *softwarePacing) nanoseconds() float64 {
	if bits := l.pace.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return firstPace
}

// time estimates how long so many elements take.
func (l *softwarePacing) time(elements int) time.Duration {
	return time.Duration(float64(elements) * l.nanoseconds())
}

// measure learns from a batch. The estimate follows rising costs faster than falling ones. Called on the driver thread.
func (l *softwarePacing) measure(elements int, took time.Duration) {
	l.elements += elements
	if l.took += took; l.took < leastSpan {
		return
	}
	pace := min(max(float64(l.took)/float64(l.elements), leastPace), mostPace)
	if before := l.nanoseconds(); pace > before {
		pace = before + (pace-before)/2
	} else {
		pace = before + (pace-before)/8
	}
	l.pace.Store(math.Float64bits(pace))
	l.elements, l.took = 0, 0
}

// full reports whether a batch takes no more.
func (s *stream) full(b *batch) bool {
	return b.full(s.device.pacing.size()) || s.device.adapter.Software && s.device.load.time(b.load) >= loadFull
}

// tooFar reports whether a GPU made of software has enough work queued already.
func (s *stream) tooFar(b *batch) bool {
	loaded := int(s.loaded.Load())
	return loaded > 0 && s.device.load.time(loaded+b.load) > loadAhead
}
