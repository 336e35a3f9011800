package data

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counter yields this worker's share of 0 to n-1, and breaks as it is told.
type counter struct {
	n     int
	fail  int // from 1 on: an error in place of this number
	panic int // from 1 on
	exit  int // from 1 on
}

func (c counter) Samples(ctx context.Context, w Worker) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := w.ID; i < c.n; i += w.Count {
			time.Sleep(time.Duration(newRandom(uint64(i)).IntN(50)) * time.Millisecond)
			var err error
			switch {
			case i > 0 && i == c.panic:
				panic(fmt.Sprint("at ", i))
			case i > 0 && i == c.exit:
				runtime.Goexit()
			case i > 0 && i == c.fail:
				err = errBroken
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

func TestIterableLoader(t *testing.T) {
	for _, c := range []struct {
		n    int
		o    Options
		want [][]int
	}{
		{7, Options{BatchSize: 3}, [][]int{{0, 1, 2}, {3, 4, 5}, {6}}},
		{7, Options{BatchSize: 3, DropLast: true}, [][]int{{0, 1, 2}, {3, 4, 5}}},
		{7, Options{BatchSize: 3, Workers: 1}, [][]int{{0, 1, 2}, {3, 4, 5}, {6}}},
		{11, Options{BatchSize: 2, Workers: 3}, [][]int{{0, 3}, {1, 4}, {2, 5}, {6, 9}, {7, 10}, {8}}},
		{11, Options{BatchSize: 2, Workers: 3, DropLast: true, Prefetch: 1}, [][]int{{0, 3}, {1, 4}, {2, 5}, {6, 9}, {7, 10}}},
		{6, Options{BatchSize: 1, Workers: 4}, [][]int{{0}, {1}, {2}, {3}, {4}, {5}}},
		{0, Options{Workers: 2}, nil},
		{0, Options{}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := NewIterableLoader(counter{n: c.n}, collect, c.o)
			require.NoError(t, err)
			require.Equal(t, -1, l.Len())
			require.Equal(t, append(c.want, c.want...), epochs(t, l, 2))
		})
	}
}

func TestIterableErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		dataset counter
		workers int
		want    []string
	}{
		{"error", counter{n: 8, fail: 3}, 0, []string{"[0 1]", "data: batch 1: broken", "[4 5]", "[6 7]"}},
		{"error", counter{n: 8, fail: 3}, 2, []string{"[0 2]", "data: batch 1: broken", "[4 6]", "[5 7]"}},
		{"error in the last", counter{n: 3, fail: 2}, 0, []string{"[0 1]", "data: batch 1: broken"}},
		{"panic", counter{n: 8, panic: 5}, 0, []string{"[0 1]", "[2 3]", "data: batch 2: panic: at 5"}},
		{"panic", counter{n: 8, panic: 5}, 2, []string{"[0 2]", "[1 3]", "[4 6]", "data: batch 3: panic: at 5"}},
		{"goexit", counter{n: 8, exit: 5}, 2, []string{"[0 2]", "[1 3]", "[4 6]", "data: batch 3: the goroutine ended inside the caller's code (runtime.Goexit)"}},
	} {
		t.Run(fmt.Sprint(c.name, " ", c.workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := NewIterableLoader(c.dataset, collect, Options{BatchSize: 2, Workers: c.workers})
				require.NoError(t, err)
				var got []string
				for batch, err := range l.Epoch(t.Context()) {
					if err != nil {
						got = append(got, err.Error())
					} else {
						got = append(got, fmt.Sprint(batch))
					}
				}
				require.Equal(t, c.want, got)
			})
		})
	}
}

func TestIterableStops(t *testing.T) {
	for _, workers := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			l, err := NewIterableLoader(counter{n: 1 << 40}, collect, Options{BatchSize: 2, Workers: workers})
			require.NoError(t, err)
			n := 0
			for range l.Epoch(t.Context()) {
				if n++; n == 10 {
					break
				}
			}
			l.Start(t.Context()).Close()

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last error
			for _, err := range l.Epoch(ctx) {
				last = err
				cancel()
			}
			require.ErrorIs(t, last, context.Canceled)
		})
	}
}

// endless waits for the end of its context.
type endless struct{}

func (endless) Samples(ctx context.Context, w Worker) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		<-ctx.Done()
		yield(0, ctx.Err())
	}
}

func TestIterableThatWaitsSeesTheContext(t *testing.T) {
	for _, workers := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			l, err := NewIterableLoader(endless{}, collect, Options{Workers: workers})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = l.Start(ctx).Next()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// draws yields random numbers of the worker's.
type draws struct{}

func (draws) Samples(ctx context.Context, w Worker) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		_ = yield(w.Random.Uint64(), nil) && yield(w.Epoch, nil)
	}
}

func TestWorkersHaveSeedsOfTheirOwn(t *testing.T) {
	l, err := NewIterableLoader(draws{}, collect, Options{BatchSize: 2, Workers: 2, Seed: 1})
	require.NoError(t, err)
	got := epochs(t, l, 2)
	seen := map[uint64]bool{}
	for i, batch := range got {
		require.Equal(t, uint64(i/2), batch[1])
		require.False(t, seen[batch[0]])
		seen[batch[0]] = true
	}
	l.SetEpoch(0)
	require.Equal(t, got, epochs(t, l, 2))
}
