package core

import "sync/atomic"

// The types of this file are those of sync/atomic but for set, a plain store to an object that nobody else can see yet: an
// atomic one waits for everything the processor has written before, such as the elements of the last result.

// An atomicCount counts references.
type atomicCount struct{ n int32 }

func (c *atomicCount) set(n int32) { c.n = n }
func (c *atomicCount) load() int32 { return atomic.LoadInt32(&c.n) }
func (c *atomicCount) inc()        { atomic.AddInt32(&c.n, 1) }

// dec returns what is left.
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

// A flag is true or false.
type flag struct{ v uint32 }

func (f *flag) set(on bool) { f.v = flagValue(on) }
func (f *flag) load() bool  { return atomic.LoadUint32(&f.v) != 0 }
func (f *flag) store(on bool) {
	atomic.StoreUint32(&f.v, flagValue(on))
}

// take makes the flag false and reports whether it was true.
func (f *flag) take() bool { return atomic.CompareAndSwapUint32(&f.v, 1, 0) }

func flagValue(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
