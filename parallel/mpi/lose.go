//go:build cgo && linux

package mpi

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
)

// grace is how long an operation that cannot go on waits for its memory.
const grace = 200 * time.Millisecond

// An ending operation has failed, and MPI may use its memory until a time.
type ending struct {
	o     *operation
	until time.Time
}

// Lose marks a process as lost: pending and later operations with it end with err.
func (t *Transport) Lose(process int, err error) {
	if t.valid("Lose", process) != nil {
		return
	}
	if err == nil {
		err = fmt.Errorf("mpi: process %d is lost", process)
	}
	t.give(&operation{kind: losing, peer: process, err: err})
}

// Lost sets the function that is called once for each process with which communication has failed. It must not block. Failures that come
// earlier are kept for it.
func (t *Transport) Lost(f func(process int, err error)) {
	t.due.setLoser(f)
	t.rouse()
}

// lose ends the operations with a process. With report, the program does not know yet that it is lost. The lock is held.
func (t *Transport) lose(process int, err error, report bool) {
	if t.lost[process] != nil {
		return
	}
	t.lost[process] = err
	if report {
		t.due.add(event{process: process, err: err, lost: true})
	}
	t.interrupt(err, func(o *operation) bool { return o.peer == process })
}

// interrupt asks for the end of the operations that are chosen. Receives are cancelled. MPI has no way to cancel what it sends.
func (t *Transport) interrupt(err error, chosen func(*operation) bool) {
	if t.gone != nil {
		return
	}
	until := time.Now().Add(grace)
	for id, s := range t.slots {
		if s.o == nil || s.o.kind == meeting || !chosen(s.o) {
			continue
		}
		s.o.fail(err)
		if s.o.done != nil && !s.o.ending {
			s.o.ending = true
			t.ending = append(t.ending, ending{s.o, until})
		}
		if s.o.kind != sending && s.o.kind != posting {
			C.plaitk_mpi_cancel(t.m, C.uint64_t(id))
		}
	}
}

// giveUp ends operations whose memory MPI has not given back in time. They keep their slots, and so their memory.
func (t *Transport) giveUp() {
	if len(t.ending) == 0 {
		return
	}
	kept, now := t.ending[:0], time.Now()
	for _, e := range t.ending {
		switch {
		case e.o.done == nil:
		case now.After(e.until):
			t.end(e.o, &HeldError{e.o.err})
		default:
			kept = append(kept, e)
		}
	}
	clear(t.ending[len(kept):])
	t.ending = kept
}

// failed takes note of an error of MPI in an operation: the process at its other end is lost.
func (t *Transport) failed(o *operation, code C.int) {
	if code == C.PLAITK_MPI_ENDED {
		t.stop(t.broken(int(code)))
		o.fail(t.gone)
		return
	}
	text := "no memory"
	if code != C.PLAITK_MPI_MEMORY {
		text = t.describe(code)
	}
	if o.kind == meeting {
		o.fail(errors.New("mpi: " + text))
		return
	}
	o.fail(fmt.Errorf("mpi: communication with process %d failed: %s", o.peer, text))
	t.lose(o.peer, o.err, true)
}

func (t *Transport) describe(code C.int) string {
	var text [C.PLAITK_MPI_TEXT]C.char
	C.plaitk_mpi_describe(t.m, code, &text[0])
	return C.GoString(&text[0])
}

// broken returns the error for a result of polling that is none.
func (t *Transport) broken(n int) error {
	if n == C.PLAITK_MPI_ENDED {
		return errors.New("mpi: another part of the program has finalised MPI")
	}
	return errors.New("mpi: MPI failed: " + t.describe(C.int(-3-n)))
}

// stop ends all operations for good: MPI is not called any more. The lock is held.
func (t *Transport) stop(err error) {
	if t.gone != nil {
		return
	}
	t.gone = err
	for p := range t.lost {
		if t.lost[p] == nil {
			t.lost[p] = err
			if p != t.process && !t.closed {
				t.due.add(event{process: p, err: err, lost: true})
			}
		}
	}
	for _, s := range t.slots {
		if s.o != nil && s.o.done != nil {
			s.o.fail(err)
			t.end(s.o, &HeldError{s.o.err})
		}
	}
	t.ending = nil
}
