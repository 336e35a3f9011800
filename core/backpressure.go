package core

import (
	"sync/atomic"
	"time"
)

// nearlyFull counts the streams whose queue is nearly full.
var nearlyFull atomic.Int32

// Crowd changes that count: a stream passes 1 when its queue becomes nearly full, and -1 when it has space again.
func Crowd(n int32) { nearlyFull.Add(n) }

// Crowded reports whether one of the calling thread's current streams has a nearly full queue, so that a launch might block. It costs one
// atomic load while no queue is nearly full.
func Crowded() bool { return nearlyFull.Load() > 0 && len(CurrentContext().crowded()) > 0 }

// MakeRoom waits until no current stream of the calling thread has a nearly full queue.
func MakeRoom() {
	for _, s := range CurrentContext().crowded() {
		s.MakeRoom()
	}
}

// MakeRoomFor is [MakeRoom] with a timeout of about d.
func MakeRoomFor(d time.Duration) {
	const pause = 100 * time.Microsecond
	for end := time.Now().Add(d); Crowded() && time.Now().Before(end); {
		time.Sleep(pause)
	}
}

// crowded returns the context's streams whose queue is nearly full.
func (c *Context) crowded() []Stream {
	var out []Stream
	add := func(streams []Stream) {
		for _, s := range streams {
			if s != nil && s.Crowded() {
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
