package collective

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func long() time.Duration { return longSpin }

func short() time.Duration { return shortSpin }

// polledTransport calls a function in Progress.
type polledTransport struct {
	Transport
	progress func() bool
}

func (t polledTransport) Progress() bool { return t.progress() }

func TestWaiterMovesMessages(t *testing.T) {
	var known atomic.Bool
	calls := 0
	w := &world{transport: polledTransport{progress: func() bool {
		calls++
		known.Store(calls == 3)
		return true
	}}}
	require.True(t, w.move(&known, long, -1))
	require.Equal(t, 3, calls)
	require.True(t, w.move(&known, long, 0), "nothing is left to wait for")
	require.Equal(t, 3, calls)
}

func TestOneWaiterMovesMessages(t *testing.T) {
	var known, never atomic.Bool
	var w *world
	w = &world{transport: polledTransport{progress: func() bool {
		require.False(t, w.move(&never, long, -1), "another waiter does so")
		known.Store(true)
		return false
	}}}
	require.True(t, w.move(&known, long, -1))
}

func TestWaiterStopsMoving(t *testing.T) {
	for name, active := range map[string]bool{"when nothing comes": false, "after its time": true} {
		t.Run(name, func(t *testing.T) {
			var never atomic.Bool
			w := &world{transport: polledTransport{progress: func() bool { return active }}}
			limit := time.Duration(-1)
			if active {
				limit = time.Millisecond
			}
			require.True(t, w.move(&never, short, limit))
			require.False(t, w.moving.Load())
		})
	}
}
