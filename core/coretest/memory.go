// Package coretest helps the tests of packages that allocate tensors.
package coretest

import (
	"runtime"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
)

// Settle waits for a device, collects the tensors that earlier tests dropped, and returns the bytes in use. Afterwards
// they change by what the test does alone.
func Settle(t testing.TB, d core.Device) int {
	t.Helper()
	if err := d.Synchronize(); err != nil {
		t.Fatal(err)
	}
	for quiet := 0; quiet < 3; quiet++ {
		before := core.MemoryUsage(d).Current
		collect(t)
		if core.MemoryUsage(d).Current != before {
			quiet = -1
		}
	}
	return core.MemoryUsage(d).Current
}

// collect runs the garbage collector until it has also run a cleanup that was registered before: those of earlier
// garbage have then had their turn, however busy the machine is.
func collect(t testing.TB) {
	t.Helper()
	done := make(chan struct{})
	register(done)
	for deadline := time.Now().Add(time.Minute); ; {
		runtime.GC()
		select {
		case <-done:
			time.Sleep(time.Millisecond) // several goroutines run cleanups
			return
		case <-time.After(time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("the garbage collector ran no cleanup in a minute")
			}
		}
	}
}

//go:noinline
func register(done chan struct{}) {
	runtime.AddCleanup(new([64]byte), func(c chan struct{}) { close(c) }, done)
}
