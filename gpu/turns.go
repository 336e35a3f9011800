package gpu

import (
	"sync/atomic"
	"time"
)

const (
	// turn is how long the GPU is about to be busy with a batch while streams take turns.
	turn = 2 * time.Millisecond
	// leastTurn is how many commands such a batch has at least.
	leastTurn = 4
	// turnsAhead is how many such batches of a stream may be on the GPU: while it runs one, the next is there.
	turnsAhead = 2
	// turnsKept is how many batches after a copy between the host and the device streams go on to take turns.
	turnsKept = 512
)

// A turns decides how much of a stream's work the GPU is given at once. The GPU runs batches in the order in which it gets them,
// whichever stream they are of, so that what another stream has to copy for a collective would wait for all that was given
// before. While there are such copies, streams therefore give little at a time; otherwise few and long batches cost the least.
type turns struct {
	left  atomic.Int32 // batches until they may be long again
	cost  atomic.Int64 // of a command, in nanoseconds of the GPU, smoothed
	ended time.Time    // when the last batch did; the owner's
}

// take has streams take turns for a while.
func (t *turns) take() { t.left.Store(turnsKept) }

// size returns how many commands a batch may have.
func (t *turns) size() int {
	if t.left.Load() <= 0 {
		return fullBatch
	}
	return min(max(int(int64(turn)/max(t.cost.Load(), 1)), leastTurn), fullBatch)
}

// ahead returns how many batches of a stream may be on the GPU.
func (t *turns) ahead() int32 {
	if t.left.Load() <= 0 {
		return inFlight
	}
	return turnsAhead
}

// sent counts a batch.
func (t *turns) sent() {
	if t.left.Load() > 0 {
		t.left.Add(-1)
	}
}

// measure learns from a batch of so many commands that the GPU got at a time and that has just ended. Those of streams that carry
// for collectives say nothing about computation. The owner calls it.
func (t *turns) measure(commands int, begun time.Time, carries bool) {
	now := time.Now()
	if t.ended.After(begun) {
		begun = t.ended
	}
	t.ended = now
	if carries || commands < leastTurn { // or what somebody waited for
		return
	}
	each := int64(now.Sub(begun)) / int64(commands)
	if before := t.cost.Load(); before > 0 {
		each = before + (each-before)/4
	}
	t.cost.Store(max(each, 1))
}
