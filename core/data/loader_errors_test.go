package data

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var errBroken = errors.New("broken")

func TestErrorsComeAtTheirBatch(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func() error
		check  func(*testing.T, error)
	}{
		"error": {func() error { return errBroken }, func(t *testing.T, err error) { require.ErrorIs(t, err, errBroken) }},
		"panic": {func() error { panic("oops") }, func(t *testing.T, err error) {
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, "oops", p.Value)
			require.Contains(t, string(p.Stack), "loader_errors_test.go")
		}},
		"panic with error": {func() error { panic(errBroken) }, func(t *testing.T, err error) { require.ErrorIs(t, err, errBroken) }},
		"io.EOF":           {func() error { return io.EOF }, func(t *testing.T, err error) { require.ErrorIs(t, err, io.EOF) }},
	} {
		for _, workers := range []int{0, 1, 3} {
			t.Run(fmt.Sprint(name, " ", workers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := Map(sleepy(20), func(i int) (int, error) {
						if i == 9 {
							return 0, c.breaks()
						}
						return i, nil
					})
					l, err := NewLoader(d, collect, Options{BatchSize: 4, Workers: workers})
					require.NoError(t, err)
					batch, failed := 0, 0
					for got, err := range l.Epoch(t.Context()) {
						if batch == 2 {
							var b *BatchError
							require.ErrorAs(t, err, &b)
							require.Equal(t, 2, b.Batch)
							require.Equal(t, 9, b.Index)
							require.ErrorContains(t, err, "data: batch 2, sample 9: ")
							c.check(t, err)
							failed++
						} else {
							require.NoError(t, err)
							require.Equal(t, []int{4 * batch, 4*batch + 1, 4*batch + 2, 4*batch + 3}, got)
						}
						batch++
					}
					require.Equal(t, 5, batch)
					require.Equal(t, 1, failed)
				})
			})
		}
	}
}

func TestCollateAndSamplerErrors(t *testing.T) {
	bad := func(samples []int) (int, error) {
		switch samples[0] {
		case 2:
			return 0, errBroken
		case 4:
			panic("oops")
		}
		return samples[0], nil
	}
	for _, workers := range []int{0, 2} {
		l, err := NewLoader(numbers(8), bad, Options{BatchSize: 2, Workers: workers})
		require.NoError(t, err)
		pass := l.Start(t.Context())
		_, err = pass.Next()
		require.NoError(t, err)
		_, err = pass.Next()
		require.ErrorIs(t, err, errBroken)
		require.EqualError(t, err, "data: batch 1: broken")
		_, err = pass.Next()
		require.EqualError(t, err, "data: batch 2: panic: oops")
		got, err := pass.Next()
		require.NoError(t, err)
		require.Equal(t, 6, got)
		for range 2 {
			_, err = pass.Next()
			require.Equal(t, io.EOF, err)
		}
		pass.Close()

		// An index outside the dataset, and a sampler that panics after its second batch.
		l2, err := NewLoader(numbers(8), collect, Options{BatchSize: 2, Workers: workers, Sampler: list{0, 8, 1, 2, -7}})
		require.NoError(t, err)
		var failures []string
		for _, err := range l2.Epoch(t.Context()) {
			if err != nil {
				failures = append(failures, err.Error())
			}
		}
		require.Equal(t, []string{
			"data: batch 0, sample 8: data: loader: index out of range, got 8, want 0 to 7",
			"data: batch 2: panic: a negative index",
		}, failures)
	}
}

// list is a sampler of these indices that panics at a negative one.
type list []int

func (l list) Len() int { return len(l) }

func (l list) Indices(uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, i := range l {
			if i < 0 {
				panic("a negative index")
			}
			if !yield(i) {
				return
			}
		}
	}
}

func TestGoexitCostsOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Map(numbers(6), func(i int) (int, error) {
			if i == 2 {
				runtime.Goexit()
			}
			return i, nil
		})
		l, err := NewLoader(d, collect, Options{BatchSize: 2, Workers: 1})
		require.NoError(t, err)
		var got [][]int
		for batch, err := range l.Epoch(t.Context()) {
			if err != nil {
				require.ErrorContains(t, err, "batch 1: the goroutine ended inside")
			}
			got = append(got, batch)
		}
		require.Equal(t, [][]int{{0, 1}, nil, {4, 5}}, got)
	})
}

func TestOptionsThatContradict(t *testing.T) {
	batches, err := Batches(Sequential(3), 1, false)
	require.NoError(t, err)
	for _, o := range []Options{
		{BatchSize: -1}, {Workers: -1}, {Prefetch: -1}, {Shuffle: true, Sampler: Sequential(3)},
		{BatchSampler: batches, BatchSize: 1}, {BatchSampler: batches, Shuffle: true}, {BatchSampler: batches, DropLast: true},
		{BatchSampler: batches, Sampler: Sequential(3)},
	} {
		_, err := NewLoader(numbers(3), collect, o)
		require.Error(t, err, "%+v", o)
		_, err = NewBatchLoader(squares(3), o)
		require.Error(t, err, "%+v", o)
		_, err = NewIterableLoader(counter{}, collect, o)
		require.Error(t, err, "%+v", o)
	}
	l, err := NewLoader(numbers(3), collect, Options{BatchSampler: batches})
	require.NoError(t, err)
	require.Equal(t, [][]int{{0}, {1}, {2}}, epochs(t, l, 1))
}
