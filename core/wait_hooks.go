package core

import (
	"sync"
	"sync/atomic"
)

var mayWait atomic.Pointer[func() bool]

// SetMayWait sets the function behind [MayWait].
func SetMayWait(ask func() bool) { mayWait.Store(&ask) }

// MayWait reports whether the calling thread may block on a device. It may not while it holds another language's lock that other threads
// need. The check costs about as much as a system call: make it only before a wait.
func MayWait() bool {
	ask := mayWait.Load()
	return ask == nil || (*ask)()
}

var waiting atomic.Pointer[func(wait func())]

// SetWaiting sets the function behind [Waiting].
func SetWaiting(run func(wait func())) { waiting.Store(&run) }

// Waiting runs wait, which blocks on a device inside a call that cannot return yet. A caller that holds another language's lock releases it
// meanwhile: the device may be waiting for ranks that need the lock.
func Waiting(wait func()) {
	if run := waiting.Load(); run != nil {
		(*run)(wait)
		return
	}
	wait()
}

// Synchronous makes streams wait for every call, as PLAIT_SYNC demands, and [Launch] return its error.
func Synchronous() { synchronous.Store(true) }

var synchronous atomic.Bool

// Launch launches a call on the stream of its Begin. If an operand has no memory or the device refuses the call, Launch returns the error
// and the outputs fail. In synchronous mode it returns the execution error; threads take turns, so that the error belongs to the call.
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

// Lock locks mu, whose holders may block on a device. A caller that holds another language's lock, such as Python's, releases that lock
// while it waits. It does not hold mu while it takes that lock again, because the thread that has the lock may wait for mu.
func Lock(mu *sync.Mutex) {
	for !mu.TryLock() {
		Waiting(func() {
			mu.Lock()
			defer mu.Unlock() // only the wait is wanted
		})
	}
}
