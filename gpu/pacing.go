package gpu

import (
	"sync/atomic"
	"time"
)

const (
	// turnTime is how long a batch should take on the GPU while streams take turns. shortTurnTime replaces it while somebody is about to
	// wait for a copy. The end of a batch costs about 40 microseconds.
	turnTime, shortTurnTime = 8 * time.Millisecond, 2 * time.Millisecond
	// minTurnCommands is the least number of commands of such a batch.
	minTurnCommands = 4
	// turnsInFlight is how many such batches of a stream may be on the GPU: one that runs and the next.
	turnsInFlight = 2
	// turnBatchCount is the number of batches for which streams take turns after a copy between the host and the device.
	turnBatchCount = 512
	// shortBatchCount is how many batches are short after [stream.ExpectWait].
	shortBatchCount = 32
)

// A pacing decides how long batches are. The GPU runs batches in the order of submission, whichever stream they are from, so a copy of a
// collective waits for every batch submitted before it. While there are such copies, batches are short, so that streams take turns.
// Otherwise batches are long, which costs the least.
type pacing struct {
	turnBatches  atomic.Int32 // batches for which streams still take turns
	shortBatches atomic.Int32 // batches for which turns are still short
	cost         atomic.Int64 // GPU nanoseconds per command, smoothed
	ended        time.Time    // end of the last batch; used by the driver thread only
}

// beginTurns makes streams take turns for the next turnBatchCount batches.
func (t *pacing) beginTurns() { t.turnBatches.Store(turnBatchCount) }

// shortenTurns makes the turns of the next shortBatchCount batches short.
func (t *pacing) shortenTurns() { t.shortBatches.Store(shortBatchCount) }

// size returns how many commands a batch may have.
func (t *pacing) size() int {
	if t.turnBatches.Load() <= 0 {
		return fullBatch
	}
	long := turnTime
	if t.shortBatches.Load() > 0 {
		long = shortTurnTime
	}
	return min(max(int(int64(long)/max(t.cost.Load(), 1)), minTurnCommands), fullBatch)
}

// maxBatches returns how many batches of a stream may be on the GPU.
func (t *pacing) maxBatches() int32 {
	if t.turnBatches.Load() <= 0 {
		return maxInFlight
	}
	return turnsInFlight
}

// countBatch counts a submitted batch.
func (t *pacing) countBatch() {
	for _, n := range []*atomic.Int32{&t.turnBatches, &t.shortBatches} {
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
	if carries || commands < minTurnCommands { // a batch of few commands was cut short by a request
		return took
	}
	each := int64(took) / int64(commands)
	if before := t.cost.Load(); before > 0 {
		each = before + (each-before)/4
	}
	t.cost.Store(max(each, 1))
	return took
}

// feed sends the batch if the GPU is or will soon be idle although more calls are queued, and the batch has as many commands as the driver
// wants. The required number doubles each time in a row: the recording of calls is then the bottleneck, and long batches cost the least.
func (s *stream) feed(r *encoder) {
	if int(s.inFlight.Load()) <= s.device.limits.AheadBatches && r.batch.list.Len() >= r.feedThreshold {
		r.feedThreshold = min(2*r.feedThreshold, fullBatch)
		s.send(r)
	}
}

// maxHeldPieces is how many pieces of a collective a stream collects in a batch before it waits to send them.
const maxHeldPieces = 2

// sendsPiece reports whether a batch with a piece of a collective is sent although more calls are queued, so that whoever waits for the
// piece can continue.
func (s *stream) sendsPiece(r *encoder) bool {
	return s.inFlight.Load() < s.maxBatches() || len(r.batch.reads)+len(r.batch.uploads) >= maxHeldPieces
}
