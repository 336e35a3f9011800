package mpi

import (
	"fmt"
	"time"
)

// Options say which processes a [Transport] joins. The zero value is right for a program that a launcher started.
type Options struct {
	// Prefix is the root of the Python environment whose library is used, sys.prefix. If it is empty, VIRTUAL_ENV names it.
	Prefix string
	// Communicator is Fortran's number of a communicator of MPI, whose processes join; all of them must. With mpi4py it is comm.py2f(). If it
	// is nil, all processes that the launcher started join.
	Communicator *int32
	// Timeout is how long Join waits for the other processes. 0 means 5 minutes.
	Timeout time.Duration
	// Farewell is how long Close waits for the other processes to come to it. 0 means 30 seconds.
	Farewell time.Duration
}

const (
	welcome  = 5 * time.Minute  // that Join waits for other processes
	farewell = 30 * time.Second // that Close does
)

// A HeldError is the error of an operation whose memory MPI may still read or write. The memory must stay allocated until the process ends.
type HeldError struct {
	// Err says why the operation has ended.
	Err error
}

// Error implements error.
func (e *HeldError) Error() string { return fmt.Sprintf("%v (its memory stays with MPI)", e.Err) }

// Held returns true: see [HeldError].
func (e *HeldError) Held() bool { return true }

// Unwrap returns the reason.
func (e *HeldError) Unwrap() error { return e.Err }
