//go:build cgo && linux

package mpi

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLock(t *testing.T) {
	var l lock
	require.True(t, l.TryLock())
	require.False(t, l.TryLock())
	require.False(t, l.watched())
	l.Unlock()
	atomic.StoreUint32(&l.word, watching) // as plaitk_mpi_watch does
	require.False(t, l.TryLock())
	require.True(t, l.watched())
	l.takeOver()
	require.False(t, l.watched())
	require.False(t, l.TryLock())
	l.Unlock()

	n := 0
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				l.Lock()
				n++
				l.Unlock()
			}
		})
	}
	all.Wait()
	require.Equal(t, 400, n)
}
