package core

import "sync/atomic"

var allocFault atomic.Pointer[func(s Stream, bytes int) bool]

// SetAllocFault makes every allocation fail for which fn returns true, including kernels' workspace. Nil turns the fault off. It is for
// tests.
func SetAllocFault(fn func(s Stream, bytes int) bool) {
	if fn == nil {
		allocFault.Store(nil)
		return
	}
	allocFault.Store(&fn)
}

// AllocFault reports whether an allocation on s must fail. Streams ask it before they allocate.
func AllocFault(s Stream, bytes int) bool {
	fn := allocFault.Load()
	return fn != nil && (*fn)(s, bytes)
}
