// Package pool holds the C worker pool that the kernels of one CPU device share.
//
// The pool is C because its workers run C: a kernel hands its chunks out with plait_parallel (see plait_pool.h) inside
// one cgo call, and no goroutine is woken.
package pool

/*
#cgo LDFLAGS: -lpthread
#include "../include/plait_pool.h"
*/
import "C"

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Pool is a set of C threads that run the chunks of kernels. Its methods may be called from several goroutines.
type Pool struct {
	ptr     unsafe.Pointer // atomic: the *C.plait_pool
	threads int
	cleanup runtime.Cleanup
}

// New starts threads-1 workers; the thread that calls a kernel runs chunks too. With threads <= 1, or if no thread can
// be started, the pool has no workers and kernels run on their caller alone.
func New(threads int) *Pool {
	p := &Pool{threads: max(threads, 1)}
	c := C.plait_pool_new(C.int(min(p.threads, 1<<20)))
	if c == nil {
		p.threads = 1
		return p
	}
	p.ptr = unsafe.Pointer(c)
	p.cleanup = runtime.AddCleanup(p, free, p.ptr)
	return p
}

// Threads returns how many threads run a kernel, including the caller.
func (p *Pool) Threads() int { return p.threads }

// Ptr returns the plait_pool to pass to C, or nil if there are no workers: then C runs everything on the caller. The
// Pool must stay alive while C uses it.
func (p *Pool) Ptr() unsafe.Pointer {
	if p == nil {
		return nil
	}
	return atomic.LoadPointer(&p.ptr)
}

// Close ends the workers and waits for them. No kernel may be using the pool. A second Close does nothing.
func (p *Pool) Close() {
	if c := atomic.SwapPointer(&p.ptr, nil); c != nil {
		p.cleanup.Stop()
		free(c)
	}
}

func free(p unsafe.Pointer) { C.plait_pool_free((*C.plait_pool)(p)) }
