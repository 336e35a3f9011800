package core_test

import (
	"sync"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

// A thread that gets a mutex by Lock and must take the foreign lock again does not keep the mutex from the thread that has that lock.
func TestLockHoldsNothingWhileItTakesTheForeignLock(t *testing.T) {
	var foreign, mu sync.Mutex
	core.SetWithoutForeignLock(func(wait func()) {
		foreign.Unlock()
		defer foreign.Lock()
		wait()
	})
	defer core.SetWithoutForeignLock(func(wait func()) { wait() })
	mu.Lock()
	begun, locked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(locked)
		foreign.Lock()
		defer foreign.Unlock()
		close(begun)
		core.Lock(&mu)
		mu.Unlock()
	}()
	<-begun
	foreign.Lock() // once the goroutine waits for mu
	time.Sleep(10 * time.Millisecond)
	mu.Unlock()
	require.Eventually(t, mu.TryLock, 10*time.Second, time.Millisecond)
	mu.Unlock()
	foreign.Unlock()
	<-locked
}
