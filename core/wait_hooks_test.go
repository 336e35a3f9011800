package core_test

import (
	"sync"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

// A thread that gets a mutex by Lock and must take another language's lock back does not keep the mutex from the thread that has that lock.
func TestLockHoldsNothingWhileItTakesTheOtherLockBack(t *testing.T) {
	var other, mu sync.Mutex
	core.SetWaiting(func(wait func()) {
		other.Unlock()
		defer other.Lock()
		wait()
	})
	defer core.SetWaiting(func(wait func()) { wait() })
	mu.Lock()
	begun, locked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(locked)
		other.Lock()
		defer other.Unlock()
		close(begun)
		core.Lock(&mu)
		mu.Unlock()
	}()
	<-begun
	other.Lock() // once the goroutine waits for mu
	time.Sleep(10 * time.Millisecond)
	mu.Unlock()
	require.Eventually(t, mu.TryLock, 10*time.Second, time.Millisecond)
	mu.Unlock()
	other.Unlock()
	<-locked
}
