//go:build cgo && linux

package mpi

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	spin      = 50 * time.Microsecond  // of polling after the last thing that happened
	firstNap  = 20 * time.Microsecond  // of sleep after that
	soon      = 2 * time.Millisecond   // without anything happening, during which sleeps stay that short if there are cores to spare
	nap       = 100 * time.Microsecond // of sleep later
	quiet     = 10 * time.Millisecond  // without anything happening, before naps get longer
	waitNap   = 400 * time.Microsecond // of sleep at most while operations are pending
	idleNap   = 2 * time.Millisecond   // of sleep at most when none are: shorter ones take more than 3 % of a core in virtual machines
	sparing   = 4                      // cores for each process, of which one is to spare
	late      = time.Microsecond       // that a sleep may end
	polledNow = 20 * time.Microsecond  // since a call of Progress, after which others may be expected
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
	begin  time.Time
	ended  atomic.Bool
}

// Progress moves messages along, and calls listeners and done functions that are due, unless another goroutine is doing so.
func (t *Transport) Progress() {
	t.sleep.polled.Store(int64(time.Since(t.sleep.begin)))
	t.turn()
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
	n := int(C.plaitk_mpi_poll(t.m))
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
	for !t.sleep.ended.Load() {
		active := t.turn()
		if c := t.count.Load(); c != count {
			count, active = c, true
		}
		now := time.Now()
		if active {
			last, pause = now, firstNap
		}
		switch {
		case t.othersPoll():
			t.nap(nap, func() bool { return true })
		case now.Sub(last) < spin:
		default:
			most := nap
			switch since := now.Sub(last); {
			case since > quiet:
				most = t.longest()
			case since < soon && runtime.NumCPU() >= sparing*t.processes:
				most = firstNap
			}
			pause = min(pause*5/4, most)
			t.nap(pause, func() bool { return t.count.Load() == count && t.due.waiting.Load() == 0 })
		}
	}
	t.leave()
	close(t.left)
}

// othersPoll reports whether a goroutine that waits has called Progress just now.
func (t *Transport) othersPoll() bool {
	return time.Since(t.sleep.begin)-time.Duration(t.sleep.polled.Load()) < polledNow
}

// longest returns how long to sleep at most. Those that listen do not count as pending.
func (t *Transport) longest() time.Duration {
	if !t.mpi.TryLock() {
		return waitNap
	}
	defer t.mpi.Unlock()
	if len(t.slots)-len(t.free) > t.processes {
		return waitNap
	}
	return idleNap
}

// nap sleeps if nothing is to be done, which is asked when the transport can be woken.
func (t *Transport) nap(d time.Duration, nothing func() bool) {
	seen := atomic.LoadUint32((*uint32)(&t.sleep.word))
	if d > nap {
		t.sleep.state.Store(sleeping)
	} else {
		t.sleep.state.Store(napping)
	}
	if nothing() && !t.sleep.ended.Load() {
		C.plaitk_mpi_sleep(&t.sleep.word, C.uint32_t(seen), C.int64_t(d))
	}
	t.sleep.state.Store(awake)
}

// rouse wakes the transport's goroutine, unless it naps and another goroutine is polling.
func (t *Transport) rouse() {
	switch state := t.sleep.state.Load(); {
	case state == awake:
	case state == napping && t.othersPoll():
	default:
		if t.sleep.state.CompareAndSwap(state, awake) {
			C.plaitk_mpi_wake(&t.sleep.word)
		}
	}
}
