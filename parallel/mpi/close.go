//go:build cgo && linux

package mpi

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"time"
)

const (
	lastMessages = time.Second            // for messages under way when the transport is closed
	lastReceives = 100 * time.Millisecond // for the listening receives to be cancelled
)

// Close waits a second at most for messages under way, ends pending operations with an error, waits for the other processes to come to
// their Close, and finalises MPI if Join has initialised it. It returns an error if it could not: where a process is lost it does not try.
// It must be called before the process ends, or the launcher takes the end for a failure.
func (t *Transport) Close() error {
	t.bye.Do(t.close)
	return t.byeOf
}

func (t *Transport) close() {
	t.locked(func() {
		t.take() // what was given before
		t.closed = true
	})
	t.wait(lastMessages, func() bool { return !t.under(sending, posting) })
	t.locked(func() { t.interrupt(errClosed, func(o *operation) bool { return o.done != nil }) })
	t.wait(2*grace, func() bool { return len(t.ending) == 0 })

	t.locked(t.meet)
	t.wait(t.farewell, func() bool { return t.met.pieces == 0 || t.anyLost() })
	t.locked(t.sayGone)
	t.locked(t.hearOut)

	t.locked(func() {
		t.interrupt(errClosed, func(o *operation) bool { return o.kind == listening || o.kind == continuing })
	})
	t.wait(lastReceives, func() bool { return !t.under(listening, continuing, posting) })
	t.sleep.ended.Store(true)
	t.rouse()
	if int(C.plaitk_mpi_thread()) == t.thread {
		t.leave() // a listener has called Close
	} else {
		<-t.left
	}
	t.deliver()
}

// meet starts the operation that ends when all processes have come to it.
func (t *Transport) meet() {
	if t.gone != nil || t.anyLost() {
		return
	}
	id := t.slot(t.met, 0)
	if code := C.plaitk_mpi_barrier(t.m, C.uint64_t(id)); code != 0 {
		t.freeSlot(id)
		t.failed(t.met, code)
		return
	}
	t.met.pieces = 1
}

// sayGone tells the other processes if this one does not wait for them any more: they must not wait for it in MPI_Finalize.
func (t *Transport) sayGone() {
	if t.gone != nil || t.met.pieces == 0 || t.anyLost() {
		return
	}
	for p := range t.processes {
		if o := t.message(p, gone, nil); o != nil && p != t.process {
			t.start(o)
		}
	}
}

// hearOut receives what the others had posted before they came to the meeting, of each process one message at a time.
func (t *Transport) hearOut() {
	for end := time.Now().Add(lastReceives); t.poll() && time.Now().Before(end); {
	}
}

// leave ends the use of MPI.
func (t *Transport) leave() {
	t.mpi.Lock()
	defer t.mpi.Unlock()
	if t.gone != nil {
		return // somebody else has finalised MPI, or it failed, which the program was told
	}
	met := t.met
	lost, pending := t.anyLost(), int(t.m.pending)
	everyone := !lost && met.pieces == 0 && met.err == nil && pending == 0
	all := 0
	if everyone {
		all = 1
	}
	C.plaitk_mpi_leave(t.m, C.int(all))
	C.plaitk_mpi_free(t.m)
	t.m = nil
	t.stop(errClosed)
	if pending == 0 {
		C.free(t.listening)
	}
	t.given.Lock()
	for _, b := range t.given.buffers {
		C.free(b)
	}
	t.given.buffers = nil
	t.given.Unlock()
	switch {
	case everyone || lost:
	case met.err != nil:
		t.byeOf = met.err
	case met.pieces > 0:
		t.byeOf = fmt.Errorf("mpi: Close: other processes did not close their transports within %v, so MPI was not finalised", t.farewell)
	default:
		t.byeOf = fmt.Errorf("mpi: Close: %d messages that were given have no counterpart, so MPI was not finalised", pending)
	}
}

func (t *Transport) anyLost() bool {
	for _, err := range t.lost {
		if err != nil {
			return true
		}
	}
	return false
}

// under reports whether operations of some kinds are under way with processes that are not lost.
func (t *Transport) under(kinds ...kind) bool {
	for _, s := range t.slots {
		for _, k := range kinds {
			if s.o != nil && s.o.kind == k && t.lost[s.o.peer] == nil {
				return true
			}
		}
	}
	return false
}

func (t *Transport) locked(f func()) {
	t.mpi.Lock()
	f()
	t.mpi.Unlock()
	t.issue()
}

// wait polls until a condition holds, which is asked with the lock held, for some time at most.
func (t *Transport) wait(most time.Duration, holds func() bool) {
	for end := time.Now().Add(most); ; time.Sleep(nap) {
		t.Progress()
		t.mpi.Lock()
		ok := t.gone != nil || holds()
		t.mpi.Unlock()
		if ok || time.Now().After(end) {
			return
		}
	}
}
