package core

import "sync/atomic"

var allocFault atomic.Pointer[func(s Stream, bytes int) bool]

// SetAllocFault has the allocations fail for which fn returns true, those of the memory that kernels need included, as if there
// was no room; nil has none fail. For tests.
func SetAllocFault(fn func(s Stream, bytes int) bool) {
	if fn == nil {
		allocFault.Store(nil)
		return
	}
	allocFault.Store(&fn)
}

// AllocFault reports whether an allocation on s is to fail. Streams ask it first.
func AllocFault(s Stream, bytes int) bool {
	fn := allocFault.Load()
	return fn != nil && (*fn)(s, bytes)
}
