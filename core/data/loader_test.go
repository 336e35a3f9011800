package data

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sleepy takes a time that differs from sample to sample, so that workers overtake each other.
func sleepy(n int) Dataset[int] {
	return Map(numbers(n), func(i int) (int, error) {
		time.Sleep(time.Duration(newRandom(uint64(i)).IntN(50)) * time.Millisecond)
		return i, nil
	})
}

func collect[T any](samples []T) ([]T, error) { return samples, nil }

func epochs[T any](t *testing.T, l *Loader[[]T], n int) [][]T {
	t.Helper()
	var all [][]T
	for range n {
		for batch, err := range l.Epoch(t.Context()) {
			require.NoError(t, err)
			all = append(all, batch)
		}
	}
	return all
}

// In a synctest bubble time is simulated, and a goroutine that is left over fails the test.
func TestOrderDoesNotDependOnWorkers(t *testing.T) {
	for _, o := range []Options{
		{BatchSize: 4}, {BatchSize: 4, Shuffle: true, Seed: 3}, {BatchSize: 7, Shuffle: true, DropLast: true}, {}, {BatchSize: 1000},
		{BatchSize: 3, Sampler: SubsetShuffled([]int{5, 6, 7, 8, 9}, 1)},
	} {
		var want [][]int
		for _, workers := range []int{0, 1, 2, 5, 40} {
			for _, prefetch := range []int{0, 1, 7} {
				synctest.Test(t, func(t *testing.T) {
					o.Workers, o.Prefetch = workers, prefetch
					l, err := NewLoader(sleepy(30), collect, o)
					require.NoError(t, err)
					got := epochs(t, l, 2)
					require.Len(t, got, 2*l.Len())
					if want == nil {
						want = got
					}
					require.Equal(t, want, got, "%d workers, %d ahead", workers, prefetch)
				})
			}
		}
	}
}

func TestWorkersRunAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		d := Map(numbers(100), func(i int) (int, error) {
			asked.Add(1)
			return i, nil
		})
		l, err := NewLoader(d, collect, Options{BatchSize: 2, Workers: 3, Prefetch: 4})
		require.NoError(t, err)
		pass := l.Start(t.Context())
		defer pass.Close()
		synctest.Wait()
		require.Equal(t, int64(3*4*2), asked.Load())
		_, err = pass.Next()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, int64(3*4*2+2), asked.Load(), "one batch taken, one more begun")
	})
}

func TestEpochNumbers(t *testing.T) {
	l, err := NewLoader(numbers(20), collect, Options{BatchSize: 20, Shuffle: true, Workers: 2})
	require.NoError(t, err)
	all := epochs(t, l, 3)
	require.NotEqual(t, all[0], all[1])
	require.NotEqual(t, all[1], all[2])
	l.SetEpoch(1)
	require.Equal(t, all[1:], epochs(t, l, 2), "a program that resumes sees the passes it would have seen")
}

func TestRandomSamplesDoNotDependOnWorkers(t *testing.T) {
	d := MapRandom(numbers(20), func(i int, r *Random) (uint64, error) { return r.Uint64(), nil })
	subset, err := Subset[uint64](d, []int{3, 4, 5, 3, 3, 9})
	require.NoError(t, err)
	var want [][]uint64
	for _, workers := range []int{0, 1, 4} {
		l, err := NewLoader(subset, collect, Options{BatchSize: 2, Workers: workers, Seed: 8})
		require.NoError(t, err)
		got := epochs(t, l, 2)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
	}
	seen := map[uint64]bool{}
	for _, x := range slices.Concat(want...) {
		require.False(t, seen[x], "two places of the passes drew the same")
		seen[x] = true
	}
	first, err := subset.At(0)
	require.NoError(t, err)
	again, err := subset.At(0)
	require.NoError(t, err)
	require.Equal(t, first, again)
}

func TestLeavingEarlyStopsTheWorkers(t *testing.T) {
	for _, workers := range []int{0, 1, 4} {
		synctest.Test(t, func(t *testing.T) {
			l, err := NewLoader(sleepy(1000), collect, Options{BatchSize: 2, Workers: workers})
			require.NoError(t, err)
			for range l.Epoch(t.Context()) {
				break
			}
			pass := l.Start(t.Context())
			pass.Close()
			pass.Close()
			_, err = pass.Next()
			require.ErrorIs(t, err, errClosed)
			require.Panics(t, func() {
				for range l.Epoch(t.Context()) {
					panic("in the reader")
				}
			})
		})
	}
}

func TestCloseEndsAWaitingNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := Map(numbers(2), func(i int) (int, error) {
			<-release
			return i, nil
		})
		l, err := NewLoader(d, collect, Options{Workers: 1})
		require.NoError(t, err)
		pass := l.Start(t.Context())
		failed := make(chan error)
		go func() {
			_, err := pass.Next()
			failed <- err
		}()
		synctest.Wait()
		go pass.Close()
		<-pass.ctx.Done() // which wakes Next, before the worker has anything for it
		close(release)
		require.ErrorIs(t, <-failed, errClosed)
	})
}

func TestContextEndsThePass(t *testing.T) {
	for _, workers := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			l, err := NewLoader(sleepy(100), collect, Options{BatchSize: 2, Workers: workers})
			require.NoError(t, err)
			batches, failures := 0, 0
			for _, err := range l.Epoch(ctx) {
				if err != nil {
					require.ErrorIs(t, err, errBroken)
					failures++
					continue
				}
				if batches++; batches == 3 {
					cancel(errBroken)
				}
			}
			require.Equal(t, 3, batches)
			require.Equal(t, 1, failures, "the end must not look like the end of the data")
		})
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			forever := Map(numbers(100), func(i int) (int, error) {
				if i == 3 {
					time.Sleep(time.Hour)
				}
				return i, nil
			})
			l, err := NewLoader(forever, collect, Options{BatchSize: 2, Workers: workers})
			require.NoError(t, err)
			var last error
			for _, last = range l.Epoch(ctx) {
			}
			require.ErrorIs(t, last, context.DeadlineExceeded)
		})
	}
}

// A pass that nobody closed goes with its last reference.
func TestForgottenPassIsCollected(t *testing.T) {
	l, err := NewLoader(numbers(1000), collect, Options{Workers: 4})
	require.NoError(t, err)
	ended := make(chan struct{})
	func() {
		pass := l.Start(context.Background())
		_, err = pass.Next()
		require.NoError(t, err)
		source := pass.source.(*mapSource[[]int])
		go func() {
			source.running.Wait()
			close(ended)
		}()
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		runtime.GC()
		select {
		case <-ended:
			return
		case <-time.After(time.Millisecond):
			require.True(t, time.Now().Before(deadline), "the workers go on")
		}
	}
}

type squares int

func (s squares) Len() int { return int(s) }

func (s squares) Batch(indices []int) ([]int, error) {
	var batch []int
	for _, i := range indices {
		if i == 13 {
			return nil, errBroken
		}
		batch = append(batch, i*i)
	}
	return batch, nil
}

func TestBatchLoader(t *testing.T) {
	for _, workers := range []int{0, 2} {
		l, err := NewBatchLoader(squares(5), Options{BatchSize: 2, Workers: workers})
		require.NoError(t, err)
		require.Equal(t, 3, l.Len())
		require.Equal(t, [][]int{{0, 1}, {4, 9}, {16}}, epochs(t, l, 1))

		l, err = NewBatchLoader(squares(14), Options{BatchSize: 7, Sampler: list{13, 14}, Workers: workers})
		require.NoError(t, err)
		_, err = l.Start(t.Context()).Next()
		require.ErrorContains(t, err, "batch 0, sample 14: data: loader: index out of range")
		l, err = NewBatchLoader(squares(14), Options{BatchSize: 7, Workers: workers})
		require.NoError(t, err)
		pass := l.Start(t.Context())
		_, err = pass.Next()
		require.NoError(t, err)
		_, err = pass.Next()
		require.EqualError(t, err, "data: batch 1: broken")
		pass.Close()
	}
}
