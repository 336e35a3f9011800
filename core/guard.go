package core

/*
#include <stdint.h>

static __thread char plaitk_here;
static uintptr_t plaitk_thread(void) { return (uintptr_t)&plaitk_here; }
*/
import "C"

import (
	"runtime"
	"sync"
)

// A Guard lets one thread at a time use an object with per-thread state, such as a parallel module. A second thread gets an error instead
// of waiting: the first may be waiting for another rank, and that rank may run on the second thread. The same thread may enter again, from
// hooks and from nested passes.
//
// A thread in the middle of a pass owns the object between its calls too. A goroutine in a pass must be locked to its thread.
type Guard struct {
	mu     sync.Mutex // never held while other code runs
	thread uintptr    // the owner; 0 means none
	calls  int        // the owner's calls in progress
	passes int        // the owner's passes in progress
	later  []func()
}

func currentThread() uintptr { return uintptr(C.plaitk_thread()) }

// Enter begins a call, or returns an error if another thread owns the object. [Guard.Leave] ends the call.
func (g *Guard) Enter(op string) error {
	runtime.LockOSThread()
	here := currentThread()
	g.mu.Lock()
	if g.thread != 0 && g.thread != here {
		g.mu.Unlock()
		runtime.UnlockOSThread()
		return Errorf(StateError, op, "two threads use one module at the same time; wait until the other thread has finished its pass, or give each thread its own module")
	}
	g.thread = here
	g.calls++
	g.mu.Unlock()
	return nil
}

// Leave ends a call.
func (g *Guard) Leave() {
	g.leave(g.thread)
	runtime.UnlockOSThread()
}

// leave ends a call. The object then belongs to owner if a pass is in progress, otherwise to nobody.
func (g *Guard) leave(owner uintptr) {
	for {
		g.mu.Lock()
		list := g.later
		if g.calls > 1 || len(list) == 0 {
			break
		}
		g.later = nil
		g.mu.Unlock()
		for _, fn := range list {
			fn()
		}
	}
	if g.calls--; g.calls == 0 {
		if g.passes == 0 {
			owner = 0
		}
		g.thread = owner
	}
	g.mu.Unlock()
}

// Begin starts a pass of the calling thread, inside a call. End ends it.
func (g *Guard) Begin() {
	g.mu.Lock()
	g.passes++
	g.mu.Unlock()
}

// End ends a pass, inside a call or inside a function of [Guard.Later].
func (g *Guard) End() {
	g.mu.Lock()
	g.passes = max(g.passes-1, 0)
	g.mu.Unlock()
}

// Later runs fn, a cleanup that any thread may request, while no other thread is in a call: now, or at the end of that call.
func (g *Guard) Later(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here := currentThread()
	g.mu.Lock()
	if g.calls > 0 && g.thread != here {
		g.later = append(g.later, fn)
		g.mu.Unlock()
		return
	}
	owner := g.thread
	g.thread = here
	g.calls++
	g.mu.Unlock()
	fn()
	g.leave(owner)
}
