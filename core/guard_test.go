package core_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// elsewhere runs fn on another thread.
func elsewhere(fn func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fn()
	})
	wg.Wait()
}

func TestGuardIsOneThreads(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var g core.Guard
	refused := func() (err error) {
		elsewhere(func() {
			if err = g.Enter("test"); err == nil {
				g.Leave()
			}
		})
		return err
	}
	require.NoError(t, g.Enter("test"))
	require.NoError(t, g.Enter("test"), "the same thread again")
	g.Leave()
	require.ErrorContains(t, refused(), "test: two threads use one module at the same time")
	g.Begin()
	g.Leave()
	require.ErrorContains(t, refused(), "two threads", "in the middle of a pass")
	require.NoError(t, g.Enter("test"))
	g.End()
	g.Leave()
	require.NoError(t, refused())
}

func TestGuardCleansUpBetweenCalls(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var g core.Guard
	require.NoError(t, g.Enter("test"))
	g.Begin()
	cleaned := false
	elsewhere(func() { g.Later(func() { cleaned = true }) })
	assert.False(t, cleaned, "while a call is under way")
	g.Leave()
	assert.True(t, cleaned)
	elsewhere(func() { g.Later(g.End) }) // cleanup of an abandoned pass
	elsewhere(func() {
		if assert.NoError(t, g.Enter("test")) {
			g.Leave()
		}
	})
}
