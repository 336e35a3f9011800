package gpu

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

const (
	// queueTime is about how long the work that a stream has queued on a software adapter may take, and batchTime how long each of its
	// batches may take. Submitted work cannot be cancelled, and the process cannot exit before it ends.
	queueTime = 800 * time.Millisecond
	batchTime = queueTime / maxInFlight
	// minCallElements is the least number of elements that a call counts as.
	minCallElements = 1 << 12
	// initialCost is the assumed cost of an element in nanoseconds before any measurement. Measured costs are clamped to [minCost,
	// maxCost].
	minCost, initialCost, maxCost = 1, 10, 1000
	// minMeasuredTime is the least time over which the cost of an element is measured. Shorter times are unreliable, because the driver
	// thread may see several batches end at once.
	minMeasuredTime = 50 * time.Millisecond
)

// A softwarePacing estimates how long calls take on a software adapter: the number of elements of a call, times the time per element of
// recent batches.
type softwarePacing struct {
	cost     atomic.Uint64 // nanoseconds per element as the bits of a float64; 0 before the first measurement
	elements int           // processed since the last measurement; used by the driver thread only
	took     time.Duration // time that these elements took
}

// elements returns about how many elements a call processes.
func elements(c *core.Call) int {
	if c.Fn != nil || c.Mark != nil {
		return 0
	}
	return max(c.Work, minCallElements)
}

// nanoseconds returns the estimated time per element.
func (l *softwarePacing) nanoseconds() float64 {
	if bits := l.cost.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return initialCost
}

// time estimates how long a number of elements takes.
func (l *softwarePacing) time(elements int) time.Duration {
	return time.Duration(float64(elements) * l.nanoseconds())
}

// measure updates the estimate from a batch. The estimate follows rising costs faster than falling ones. It is called on the driver thread.
func (l *softwarePacing) measure(elements int, took time.Duration) {
	l.elements += elements
	if l.took += took; l.took < minMeasuredTime {
		return
	}
	cost := min(max(float64(l.took)/float64(l.elements), minCost), maxCost)
	if before := l.nanoseconds(); cost > before {
		cost = before + (cost-before)/2
	} else {
		cost = before + (cost-before)/8
	}
	l.cost.Store(math.Float64bits(cost))
	l.elements, l.took = 0, 0
}

// full reports whether the batch must be sent.
func (s *stream) full(b *batch) bool {
	return b.full(s.device.pacing.size()) || s.device.adapter.Software && s.device.softwarePacing.time(b.elements) >= batchTime
}

// queueFull reports whether a software adapter has enough work queued already.
func (s *stream) queueFull(b *batch) bool {
	loaded := int(s.queuedElements.Load())
	return loaded > 0 && s.device.softwarePacing.time(loaded+b.elements) > queueTime
}
