package gpu

import (
	"sync/atomic"
	"time"
)

const (
	// turn is how long the GPU is about to be busy with a batch while streams take turns, and shortTurn while it is soon waited for
	// what is copied. The end of a batch costs some 40 microseconds.
	turn, shortTurn = 8 * time.Millisecond, 2 * time.Millisecond
	// leastTurn is how many commands such a batch has at least.
	leastTurn = 4
	// turnsAhead is how many such batches of a stream may be on the GPU: while it runs one, the next is there.
	turnsAhead = 2
	// turnsKept is how many batches after a copy between the host and the device streams go on to take turns.
	turnsKept = 512
	// shortKept is how many of them are short after a copy that is soon waited for.
	shortKept = 32
)

// A pacing decides how long batches are. The GPU runs batches in the order in which it gets them, whichever stream they are of, so a copy for
// a collective waits for everything submitted before it. While there are such copies, streams take turns with short batches. Otherwise
// batches are few and long, which costs the least.
type pacing struct {
	left  atomic.Int32 // batches until they may be long again
	short atomic.Int32 // batches until turns may be
	cost  atomic.Int64 // of a command, in nanoseconds of the GPU, smoothed
	ended time.Time    // when the last batch did; the owner's
}

// take begins short batches, for the next turnsKept batches.
func (t *pacing) take() { t.left.Store(turnsKept) }

// hurry makes the next shortKept batches shorter still.
func (t *pacing) hurry() { t.short.Store(shortKept) }

// size returns how many commands a batch may have.
func (t *pacing) size() int {
	if t.left.Load() <= 0 {
		return fullBatch
	}
	long := turn
	if t.short.Load() > 0 {
		long = shortTurn
	}
	return min(max(int(int64(long)/max(t.cost.Load(), 1)), leastTurn), fullBatch)
}

// ahead returns how many batches of a stream may be on the GPU.
func (t *pacing) ahead() int32 {
	if t.left.Load() <= 0 {
		return inFlight
	}
	return turnsAhead
}

// sent counts a batch.
func (t *pacing) sent() {
	for _, n := range []*atomic.Int32{&t.left, &t.short} {
		if n.Load() > 0 {
			n.Add(-1)
		}
	}
}

// measure updates the cost of a command from a batch that has just ended, and returns how long the batch took. Batches of streams that copy
// for collectives do not count. Called on the driver thread.
func (t *pacing) measure(commands int, begun time.Time, carries bool) time.Duration {
	now := time.Now()
	if t.ended.After(begun) {
		begun = t.ended
	}
	t.ended = now
	took := now.Sub(begun)
	if carries || commands < leastTurn { // or what somebody waited for
		return took
	}
	each := int64(took) / int64(commands)
	if before := t.cost.Load(); before > 0 {
		each = before + (each-before)/4
	}
	t.cost.Store(max(each, 1))
	return took
}

// leastPatience is how many commands an idle GPU waits for if more calls are queued.
const leastPatience = 16

// feed sends the batch if the GPU is idle although more calls are queued. Each time in a row it waits for twice as many commands: recording is
// then the bottleneck, and long batches cost the least.
func (s *stream) feed(r *encoder) {
	if s.flying.Load() == 0 && r.batch.list.Len() >= r.patience {
		r.patience = min(2*r.patience, fullBatch)
		s.send(r)
	}
}

// piecesKept is how many pieces of a collective a stream puts together while it may not send.
const piecesKept = 2

// hasPiece reports whether a batch with a piece of a collective is sent although more are queued, so that who waits for it can go on.
func (s *stream) hasPiece(r *encoder) bool {
	return s.flying.Load() < s.device.pacing.ahead() || len(r.batch.reads)+len(r.batch.uploads) >= piecesKept
}
