package core

/*
#include <stdint.h>

static __thread char plaitk_here;
static uintptr_t plaitk_thread(void) { return (uintptr_t)&plaitk_here; }
#cgo noescape plaitk_thread
#cgo nocallback plaitk_thread
*/
import "C"

import (
	"runtime"
	"sync"
)

// A Guard keeps all threads but one out of an object whose state is one thread's, such as that of a parallel module. A second
// thread gets an error, and does not wait: the first may be waiting for another rank, which may be a thread that cannot go on
// while the second one waits. The same thread may enter again, from hooks and from passes within passes.
//
// A thread that is in the middle of a pass keeps the object between its calls. A goroutine that does so is locked to its thread.
type Guard struct {
	mu     sync.Mutex // never held while anything else runs
	thread uintptr    // whose the object is; 0 means nobody's
	calls  int        // of the thread, that are under way
	passes int        // that it is in the middle of
	later  []func()
}

func currentThread() uintptr { return uintptr(C.plaitk_thread()) }

// Enter begins a call, or returns an error if the object is another thread's. [Guard.Leave] ends it.
func (g *Guard) Enter(op string) error {
	runtime.LockOSThread()
	here := currentThread()
	g.mu.Lock()
	if g.thread != 0 && g.thread != here {
		g.mu.Unlock()
		runtime.UnlockOSThread()
		return Errorf(StateError, op, "two threads use one module at the same time; let one wait until the other has ended its pass, or give each a module of its own")
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

// leave ends a call, after which the object is owner's if that is in the middle of a pass.
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

// Begin says, in a call, that the thread is in the middle of a pass from now on, until End.
func (g *Guard) Begin() {
	g.mu.Lock()
	g.passes++
	g.mu.Unlock()
}

// End ends what Begin began, in a call or in a function of [Guard.Later].
func (g *Guard) End() {
	g.mu.Lock()
	g.passes = max(g.passes-1, 0)
	g.mu.Unlock()
}

// Later runs fn, which cleans up and may be called for on any thread, when no other thread is in a call: now, or at the end of
// that call.
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
