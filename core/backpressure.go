package core

import (
	"sync/atomic"
	"time"
)

// crowds counts the streams whose queue is nearly full.
var crowds atomic.Int32

// Crowd is how a stream says that its queue became nearly full, with 1, or has room again, with -1.
func Crowd(n int32) { crowds.Add(n) }

// Crowded reports whether a stream that operations of the calling thread would use now is nearly full, so that they
// might wait for it. It costs next to nothing while no queue is.
func Crowded() bool { return crowds.Load() > 0 && len(CurrentContext().crowded()) > 0 }

// MakeRoom waits until none of the streams that operations of the calling thread would use now is nearly full.
func MakeRoom() {
	for _, s := range CurrentContext().crowded() {
		s.MakeRoom()
	}
}

// MakeRoomFor is [MakeRoom] for about d at most.
func MakeRoomFor(d time.Duration) {
	const pause = 100 * time.Microsecond
	for end := time.Now().Add(d); Crowded() && time.Now().Before(end); {
		time.Sleep(pause)
	}
}

// crowded returns the context's streams that are nearly full.
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
