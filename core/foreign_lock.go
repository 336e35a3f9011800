package core

import (
	"sync"
	"sync/atomic"
)

// A foreign lock is a lock of another language that calls the engine, such as Python's global interpreter lock. A thread that waits for a
// device while it holds the foreign lock can deadlock: the device may wait for another rank, whose thread needs the lock to go on. So the
// language registers two functions here, and the engine asks or releases the lock before it waits. A Go program registers none.

var (
	foreignLockHeld    atomic.Pointer[func() bool]
	withoutForeignLock atomic.Pointer[func(fn func())]
)

// SetForeignLockHeld sets the function that [ForeignLockHeld] calls.
func SetForeignLockHeld(held func() bool) { foreignLockHeld.Store(&held) }

// ForeignLockHeld reports whether the calling thread holds the foreign lock. It costs about as much as a system call, so ask only before a
// wait.
func ForeignLockHeld() bool {
	held := foreignLockHeld.Load()
	return held != nil && (*held)()
}

// SetWithoutForeignLock sets the function that [WithoutForeignLock] calls. It must run fn on the same thread.
func SetWithoutForeignLock(run func(fn func())) { withoutForeignLock.Store(&run) }

// WithoutForeignLock runs wait, which blocks. It releases the foreign lock before, if the calling thread holds it, and takes it again after.
func WithoutForeignLock(wait func()) {
	if run := withoutForeignLock.Load(); run != nil {
		(*run)(wait)
		return
	}
	wait()
}

// Lock locks mu, whose holders may block on a device. It releases the foreign lock while it waits for mu. It does not hold mu while it takes
// the foreign lock again, because the thread that holds the foreign lock may wait for mu.
func Lock(mu *sync.Mutex) {
	for !mu.TryLock() {
		WithoutForeignLock(func() {
			mu.Lock()
			defer mu.Unlock() // only the wait is wanted
		})
	}
}
