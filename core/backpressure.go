package core

import (
	"sync/atomic"
	"time"
)

// nearlyFull counts the streams whose queue is nearly full.
var nearlyFull atomic.Int32

// AddNearlyFullQueues adds n to that count: a stream passes 1 when its queue becomes nearly full, and -1 when it has space again.
func AddNearlyFullQueues(n int32) { nearlyFull.Add(n) }

// QueueNearlyFull reports whether one of the calling thread's current streams has a nearly full queue, so that a launch might block. It costs
// one atomic load while no queue is nearly full.
func QueueNearlyFull() bool {
	return nearlyFull.Load() > 0 && len(CurrentContext().nearlyFullStreams()) > 0
}

// WaitForQueueSpace waits until no current stream of the calling thread has a nearly full queue, at most for about d.
func WaitForQueueSpace(d time.Duration) {
	const pause = 100 * time.Microsecond
	for end := time.Now().Add(d); QueueNearlyFull() && time.Now().Before(end); {
		time.Sleep(pause)
	}
}

// nearlyFullStreams returns the context's streams whose queue is nearly full.
func (c *Context) nearlyFullStreams() []Stream {
	var out []Stream
	add := func(streams []Stream) {
		for _, s := range streams {
			if s != nil && s.NearlyFull() {
				out = append(out, s)
			}
		}
	}
	add(c.streams)
	if s := c.shared.streams.Load(); s != nil {
		add(*s)
	}
	return out
}
