package core

import (
	"sync"
	"sync/atomic"
)

var mayWait atomic.Pointer[func() bool]

// SetMayWait sets what [MayWait] asks.
func SetMayWait(ask func() bool) { mayWait.Store(&ask) }

// MayWait reports whether the calling thread may be made to wait for devices. It may, but where it holds a lock of
// another language that others need meanwhile. Asking costs about a system call: ask only before a wait.
func MayWait() bool {
	ask := mayWait.Load()
	return ask == nil || (*ask)()
}

var waiting atomic.Pointer[func(wait func())]

// SetWaiting sets how [Waiting] waits.
func SetWaiting(run func(wait func())) { waiting.Store(&run) }

// Waiting runs wait, which waits for a device in the midst of a call that cannot return before. A caller with a lock without which
// other ranks cannot go on gives it up meanwhile: the device may be waiting for them.
func Waiting(wait func()) {
	if run := waiting.Load(); run != nil {
		(*run)(wait)
		return
	}
	wait()
}

// Synchronous says that streams are to wait for every call, as PLAIT_SYNC asks, and that [Launch] returns what has gone wrong.
func Synchronous() { synchronous.Store(true) }

var synchronous atomic.Bool

// Launch launches a call on the stream that it was begun on, unless an operand has no memory or the device refuses the call: that error
// is returned, and the outputs have failed. Where calls are waited for it returns the error of execution, and threads take turns, so
// that it is the call's own.
func Launch(s Stream, c *Call) error {
	err := c.Err()
	if err == nil {
		err = s.Refuse(c)
	}
	if err != nil {
		c.Fail(err)
		s.Abandon(c)
		return err
	}
	if !synchronous.Load() {
		s.Launch(c)
		return nil
	}
	turn := &c.calls.turn
	Lock(turn)
	defer turn.Unlock()
	s.Launch(c)
	return s.TakeError()
}

// Lock locks mu, whose holders may wait for a device: a caller with a lock of another language gives that up meanwhile.
func Lock(mu *sync.Mutex) {
	if !mu.TryLock() {
		Waiting(mu.Lock)
	}
}
