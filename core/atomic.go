package core

import "sync/atomic"

// The types of this file add set to those of sync/atomic: a plain store, for an object that no other thread can see yet. An atomic store
// would wait until the processor has completed all earlier writes, such as the elements of the last result.

// An atomicCount is a reference count.
type atomicCount struct{ n int32 }

func (c *atomicCount) set(n int32) { c.n = n }
func (c *atomicCount) load() int32 { return atomic.LoadInt32(&c.n) }
func (c *atomicCount) inc()        { atomic.AddInt32(&c.n, 1) }

// dec returns the new count.
func (c *atomicCount) dec() int32 { return atomic.AddInt32(&c.n, -1) }

func (c *atomicCount) incUnlessZero() bool {
	for {
		n := c.load()
		if n <= 0 {
			return false
		}
		if atomic.CompareAndSwapInt32(&c.n, n, n+1) {
			return true
		}
	}
}

// A flag is an atomic bool.
type flag struct{ v uint32 }

func (f *flag) set(on bool) { f.v = flagValue(on) }
func (f *flag) load() bool  { return atomic.LoadUint32(&f.v) != 0 }
func (f *flag) store(on bool) {
	atomic.StoreUint32(&f.v, flagValue(on))
}

// take clears the flag and reports whether it was set.
func (f *flag) take() bool { return atomic.CompareAndSwapUint32(&f.v, 1, 0) }

func flagValue(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
