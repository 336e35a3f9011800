package gpu

import (
	"sync/atomic"
	"time"
)

const (
	// turnTime is how long a batch should take on the GPU while streams take turns. shortTurnTime replaces it while somebody is about to
	// wait for a copy. The end of a batch costs about 40 microseconds.
	turn, shortTurn = 8 * time.Millisecond, 2 * time.Millisecond
	// minTurnCommands is the least number of commands of such a batch.
	leastTurn = 4
	// turnsInFlight is how many such batches of a stream may be on the GPU: one that runs and the next.
	turnsAhead = 2
	// turnBatchCount is how many batches after a copy between the host and the device streams take turns for.
	turnsKept = 512
	// shortBatchCount is how many batches are short after [stream.ExpectWait].
	shortKept = 32
)

// A pacing decides how long batches are. The GPU runs batches in the order of submission, whichever stream they are from, so a copy of a
// collective waits for every batch submitted before it. While there are such copies, batches are short, so that streams take turns.
// Otherwise batches are long, which costs the least.
type pacing struct {
	left  atomic.Int32 // batches for which streams still take turns
	short atomic.Int32 // batches for which turns are still short
	cost  atomic.Int64 // GPU nanoseconds per command, smoothed
	ended time.Time    // end of the last batch; used by the driver thread only
}

// beginTurns makes streams take turns for the next turnBatchCount batches.
func (t *pacing) take() { t.left.Store(turnsKept) }

// shortenTurns makes the turns of the next shortBatchCount batches short.
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

// maxBatches returns how many batches of a stream may be on the GPU.
func (t *pacing) ahead() int32 {
	if t.left.Load() <= 0 {
		return inFlight
	}
	return turnsAhead
}

// countBatch counts a submitted batch.
func (t *pacing) sent() {
	for _, n := range []*atomic.Int32{&t.left, &t.short} {
		if n.Load() > 0 {
			n.Add(-1)
		}
	}
}

// measure updates the cost of a command from a batch that has just ended, and returns how long the batch took. Batches of streams that copy
// for collectives do not count. It is called on the driver thread.
func (t *pacing) measure(commands int, begun time.Time, carries bool) time.Duration {
	now := time.Now()
	if t.ended.After(begun) {
		begun = t.ended
	}
	t.ended = now
	took := now.Sub(begun)
	if carries || commands < leastTurn { // a batch of few commands was cut short by a request
		return took
	}
	each := int64(took) / int64(commands)
	if before := t.cost.Load(); before > 0 {
		each = before + (each-before)/4
	}
	t.cost.Store(max(each, 1))
	return took
}

// minFeedCommands is how many commands a batch must have to be sent to an idle GPU while more calls are queued.
const leastPatience = 16

// feed sends the batch if the GPU is idle although more calls are queued. The required number of commands doubles each time in a row: the
// recording of calls is then the bottleneck, and long batches cost the least.
func (s *stream) feed(r *encoder) {
	if s.flying.Load() == 0 && r.batch.list.Len() >= r.patience {
		r.patience = min(2*r.patience, fullBatch)
		s.send(r)
	}
}

// maxHeldPieces is how many pieces of a collective a stream collects in a batch before it waits to send them.
const piecesKept = 2

// sendsPiece reports whether a batch with a piece of a collective is sent although more calls are queued, so that whoever waits for the
// piece can continue.
func (s *stream) hasPiece(r *encoder) bool {
	return s.flying.Load() < s.device.pacing.ahead() || len(r.batch.reads)+len(r.batch.uploads) >= piecesKept
}
