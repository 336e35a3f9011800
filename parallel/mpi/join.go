//go:build cgo && linux

package mpi

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

const (
	// postTag is the tag of messages to listeners; those of data are greater.
	postTag = 0
	// leastTags is the least number of tags that the standard allows for.
	leastTags = 1 << 15
)

// Join initialises MPI, if nobody else has, and returns the transport between the processes. It waits for the other processes, which must
// call it too. MPI can be initialised once in a process. After an error because of the time the process should end: MPI may go on waiting.
func Join(o Options) (*Transport, error) {
	type joined struct {
		t   *Transport
		err error
	}
	result := make(chan joined, 1)
	go func() {
		// MPI wants to be finalised by the thread that has initialised it. The thread ends with the goroutine.
		runtime.LockOSThread()
		t, err := join(o)
		result <- joined{t, err}
		if err == nil {
			t.communicate()
		}
	}()
	limit := o.Timeout
	if limit <= 0 {
		limit = welcome
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case j := <-result:
		return j.t, j.err
	case <-timer.C:
		return nil, fmt.Errorf("mpi: the other processes did not come to initialise MPI within %v: one of them has ended, hangs, or never calls Join", limit)
	}
}

func join(o Options) (*Transport, error) {
	library, err := Find(o.Prefix)
	if err != nil {
		return nil, err
	}
	started := launched()
	if o.Communicator == nil && !library.initialized && started.hopeless(library) {
		if err := started.check(library, 1); err != nil {
			return nil, err
		}
	}
	if l := launched(); o.Communicator == nil && l.strange(library) {
		return nil, l.check(library, 1) // MPICH would end the process under Open MPI's launcher
	}
	m := C.plaitk_mpi_new(library.raw, library.about)
	if m == nil {
		return nil, fmt.Errorf("mpi: %v cannot be used: %s", library, C.GoString(&library.about.error[0]))
	}
	given, communicator := C.int(0), C.int(0)
	if o.Communicator != nil {
		given, communicator = 1, C.int(*o.Communicator)
	}
	if C.plaitk_mpi_join(m, given, communicator) != 0 {
		err := fmt.Errorf("mpi: %v: %s", library, C.GoString(&m.error[0]))
		C.plaitk_mpi_leave(m, 0)
		C.plaitk_mpi_free(m)
		return nil, err
	}
	if o.Communicator == nil {
		if err := started.check(library, int(m.processes)); err != nil {
			C.plaitk_mpi_leave(m, 1) // there are no others to wait for
			C.plaitk_mpi_free(m)
			return nil, err
		}
	}
	if int64(m.tags) < leastTags-1 {
		return nil, errors.New("mpi: the library has fewer tags than the standard asks for")
	}
	t := newTransport(m, library)
	if o.Farewell > 0 {
		t.farewell = o.Farewell
	}
	return t, nil
}
