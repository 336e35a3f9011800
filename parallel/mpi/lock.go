//go:build cgo && linux

package mpi

import (
	"sync/atomic"
	"time"
)

// Values of a lock.
const (
	unlocked uint32 = iota
	locked
	watching // by plaitk_mpi_watch, for one poll
)

// lockNap is how long a goroutine that must have the lock sleeps between its attempts.
const lockNap = 20 * time.Microsecond

// A lock is a mutex that C can lock too. Mostly it is only tried.
type lock struct{ word uint32 }

// TryLock locks it unless it is locked.
func (l *lock) TryLock() bool { return atomic.CompareAndSwapUint32(&l.word, unlocked, locked) }

// Lock waits until it is not locked, and locks it.
func (l *lock) Lock() {
	for !l.TryLock() {
		time.Sleep(lockNap)
	}
}

// Unlock unlocks it.
func (l *lock) Unlock() { atomic.StoreUint32(&l.word, unlocked) }

// watched reports whether the watcher has locked it.
func (l *lock) watched() bool { return atomic.LoadUint32(&l.word) == watching }

// takeOver makes the watcher's lock that of the caller.
func (l *lock) takeOver() { atomic.CompareAndSwapUint32(&l.word, watching, locked) }
