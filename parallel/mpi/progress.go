//go:build cgo && linux

package mpi

/*
#include "shim.h"
*/
import "C"

import (
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	spin      = 50 * time.Microsecond  // of polling after the last thing that happened
	firstNap  = 20 * time.Microsecond  // of sleep after that
	soon      = 2 * time.Millisecond   // without anything happening, during which sleeps stay that short if there are cores to spare
	nap       = 100 * time.Microsecond // of sleep later
	busy      = time.Millisecond       // without anything happening, before naps get longer if there are no cores to spare: each takes one from a computation
	quiet     = 10 * time.Millisecond  // and in any case
	waitNap   = 400 * time.Microsecond // of sleep at most then, while operations are pending
	idleNap   = 2 * time.Millisecond   // of sleep at most when none are: shorter ones take more than 3 % of a core in virtual machines
	longWatch = 50 * time.Millisecond  // of sleeps after which the schedule is looked at again
	sparing   = 4                      // cores for each process, of which one is to spare
	late      = time.Microsecond       // that a sleep may end
	polledNow = 100 * time.Microsecond // since a call of Progress, after which others may be expected
	patience  = 200 * time.Microsecond // without anything happening, before calls of Progress let other threads compute
)

// States of the transport's goroutine.
const (
	awake int32 = iota
	napping
	sleeping // for longer than nap
)

// sleep is how the transport's goroutine sleeps and is woken.
type sleep struct {
	state  atomic.Int32
	word   C.uint32_t   // what the sleeper waits on
	polled atomic.Int64 // when Progress was last called, in nanoseconds after begin
	moved  atomic.Int64 // when it last moved something, or began to be called
	begin  time.Time
	polls  C.uint32_t // counts calls of Progress
	ended  atomic.Bool
}

// Progress moves messages along, and calls listeners and done functions that are due, unless another goroutine is doing so. It reports whether
// anything happened. If nothing has for a while, it lets other threads compute.
func (t *Transport) Progress() bool {
	now := int64(time.Since(t.sleep.begin))
	before := t.sleep.polled.Swap(now)
	atomic.AddUint32((*uint32)(&t.sleep.polls), 1)
	active := t.turn()
	if active || now-before > int64(polledNow) { // the first of several
		t.sleep.moved.Store(now)
	} else if now-t.sleep.moved.Load() > int64(patience) {
		C.plaitk_mpi_yield()
	}
	return active
}

// turn polls once and makes the calls that are due. It reports whether anything happened.
func (t *Transport) turn() (active bool) {
	if t.mpi.TryLock() {
		active = t.poll()
		t.mpi.Unlock()
	}
	t.issue()
	return t.deliver() || active
}

// deliver makes the calls that are due. One that panics ends the transport.
func (t *Transport) deliver() bool {
	any, failure := t.due.deliver()
	if failure != nil {
		t.mpi.Lock()
		t.stop(failure)
		t.mpi.Unlock()
	}
	return any
}

// poll lets MPI work. The lock is held.
func (t *Transport) poll() (active bool) {
	t.take()
	if t.gone != nil {
		return false
	}
	return t.polled(int(C.plaitk_mpi_poll(t.m)))
}

// polled takes note of n results, and reports whether there are any. The lock is held.
func (t *Transport) polled(n int) bool {
	if n < 0 {
		t.stop(t.broken(n))
		return true
	}
	// Starting operations may move the list.
	t.results = append(t.results[:0], unsafe.Slice(t.m.results, n)...)
	for i := range t.results {
		t.handle(&t.results[i])
	}
	t.giveUp()
	return n > 0
}

// communicate polls until the transport ends, and leaves MPI.
func (t *Transport) communicate() {
	C.plaitk_mpi_punctual(C.int64_t(late))
	last, pause := time.Now(), firstNap
	var count uint64
	found := false
	for !t.sleep.ended.Load() {
		active := found
		if !t.othersPoll() {
			active = t.turn() || found
		}
		if c := t.count.Load(); c != count {
			count, active = c, true
		}
		now := time.Now()
		if active {
			last, pause = now, firstNap
		}
		since := now.Sub(last)
		if found = false; t.spare && since < spin {
			continue
		}
		most, limit := nap, quiet-since
		switch {
		case since >= quiet:
			most, limit = t.longest()
		case t.spare && since < soon:
			most, limit = firstNap, soon-since
		case !t.spare && since < busy:
			limit = busy - since
		case !t.spare:
			most = waitNap
		}
		found = t.watch(min(pause, most), most, limit, func() bool { return t.count.Load() == count && t.due.waiting.Load() == 0 })
		pause = most
	}
	t.leave()
	close(t.left)
}

// othersPoll reports whether a goroutine that waits has called Progress just now.
func (t *Transport) othersPoll() bool {
	return time.Since(t.sleep.begin)-time.Duration(t.sleep.polled.Load()) < polledNow
}

// longest returns how long to sleep at most after a while without messages, and when to ask again. Those that listen do not count as pending.
func (t *Transport) longest() (most, limit time.Duration) {
	if !t.mpi.TryLock() {
		return waitNap, nap
	}
	defer t.mpi.Unlock()
	switch {
	case len(t.ending) > 0:
		return waitNap, waitNap // it has a time limit
	case len(t.slots)-len(t.free) > t.processes:
		return waitNap, longWatch
	}
	return idleNap, longWatch
}

// watch sleeps, and polls after each sleep, if nothing is to be done, which is asked when the transport can be woken. It returns when it is
// woken or after a limit, or when a message has come, which it reports. Meanwhile Go's scheduler, for which short calls of C are costly, is
// not involved.
func (t *Transport) watch(pause, most, limit time.Duration, nothing func() bool) (active bool) {
	seen := atomic.LoadUint32((*uint32)(&t.sleep.word))
	if most > nap {
		t.sleep.state.Store(sleeping)
	} else {
		t.sleep.state.Store(napping)
	}
	n := C.int(0)
	if nothing() && !t.sleep.ended.Load() {
		n = C.plaitk_mpi_watch(t.m, (*C.uint32_t)(&t.mpi.word), &t.sleep.word, C.uint32_t(seen), &t.sleep.polls,
			C.int64_t(pause), C.int64_t(most), C.int64_t(limit))
	}
	t.sleep.state.Store(awake)
	if n == 0 {
		return false
	}
	t.mpi.takeOver()
	active = t.gone == nil && t.polled(int(n))
	t.mpi.Unlock()
	t.issue()
	t.deliver()
	return active
}

// rouse wakes the transport's goroutine, unless it naps and another goroutine is polling.
func (t *Transport) rouse() {
	switch state := t.sleep.state.Load(); {
	case state == awake:
	case state == napping && t.due.waiting.Load() == 0 && (!t.spare || t.othersPoll()): // it polls soon, or they do
	default:
		if t.sleep.state.CompareAndSwap(state, awake) {
			C.plaitk_mpi_wake(&t.sleep.word)
		}
	}
}
