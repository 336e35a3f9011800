package core

import "sync/atomic"

var mayWait atomic.Pointer[func() bool]

// SetMayWait sets what [MayWait] asks.
func SetMayWait(ask func() bool) { mayWait.Store(&ask) }

// MayWait reports whether the calling thread may be made to wait for devices. It may, but where it holds a lock of
// another language that others need meanwhile. Asking costs about a system call: ask only before a wait.
func MayWait() bool {
	ask := mayWait.Load()
	return ask == nil || (*ask)()
}
