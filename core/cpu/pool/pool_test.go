package pool_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/pool"
	"github.com/plait-ml/plait/core/cpu/pool/internal/exercise"
)

// The largest size exceeds the number of processors, so that workers are late and sleep.
var sizes = []int{0, 1, 2, 3, 8, 2*runtime.NumCPU() + 5}

func TestEveryChunkRunsOnce(t *testing.T) {
	for _, threads := range sizes {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			p := pool.New(threads)
			defer p.Close()
			for _, chunks := range []int{1, 2, 3, 17, 1000} {
				require.Zero(t, exercise.Repeat(p.Ptr(), 500, chunks, 0), "%d chunks", chunks)
				require.Zero(t, exercise.Repeat(p.Ptr(), 50, chunks, 200), "%d chunks of work", chunks)
			}
		})
	}
}

func TestZeroChunks(t *testing.T) {
	p := pool.New(2)
	defer p.Close()
	exercise.Nothing(p.Ptr(), 1, 0)
	require.Zero(t, exercise.Repeat(p.Ptr(), 1, 4, 0))
}

func TestConcurrentCallers(t *testing.T) {
	for _, threads := range sizes {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			p := pool.New(threads)
			defer p.Close()
			var wrong atomic.Int64
			var wg sync.WaitGroup
			for g := range 16 {
				wg.Go(func() {
					for i := range 20 {
						wrong.Add(int64(exercise.Repeat(p.Ptr(), 40, 1+(g*7+i)%23, 20)))
					}
				})
			}
			wg.Wait()
			require.Zero(t, wrong.Load())
		})
	}
}

func TestCallersThatPause(t *testing.T) {
	p := pool.New(3)
	defer p.Close()
	// Some pauses are shorter than a worker's spinning and some longer, so calls also meet workers that are about to
	// sleep.
	for i := range 600 {
		time.Sleep(time.Duration(i%60) * time.Microsecond)
		require.Zero(t, exercise.Repeat(p.Ptr(), 2, 5, 50))
	}
}

func TestNestedCallRunsOnItsCaller(t *testing.T) {
	p := pool.New(4)
	defer p.Close()
	for range 50 {
		require.Zero(t, exercise.Nested(p.Ptr(), 9))
	}
}

func TestWorkersTakePartAndBlockSignals(t *testing.T) {
	p := pool.New(3)
	defer p.Close()
	require.Equal(t, 3, p.Threads())
	others, unblocked, _ := exercise.Workers(p.Ptr(), 64)
	require.Positive(t, others)
	require.Zero(t, unblocked)
}

func TestEachThreadBeginsWithItsPart(t *testing.T) {
	p := pool.New(2)
	defer p.Close()
	// After some pauses the worker sleeps, and is woken.
	for i := range 20 {
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		_, _, first := exercise.Workers(p.Ptr(), 9)
		require.Equal(t, 5, first)
	}
}

func TestNoWorkers(t *testing.T) {
	p := pool.New(1)
	require.Nil(t, p.Ptr())
	require.Equal(t, 1, p.Threads())
	others, _, _ := exercise.Workers(p.Ptr(), 8)
	require.Zero(t, others)
	p.Close()

	var none *pool.Pool
	require.Nil(t, none.Ptr())
}

func TestOpenAndCloseManyPools(t *testing.T) {
	for i := range 100 {
		p := pool.New(2 + i%7)
		require.Zero(t, exercise.Repeat(p.Ptr(), i%3, 4, 0))
		p.Close()
		p.Close()
		require.Nil(t, p.Ptr())
	}
}

func BenchmarkCall(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := pool.New(threads)
			defer p.Close()
			exercise.Nothing(p.Ptr(), b.N, 8)
		})
	}
}
