package data

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

// ranked reports the mode in which its samples are made.
type ranked struct{ Slice[int] }

func (ranked) At(i int) (string, error) {
	m := core.CurrentMode()
	return fmt.Sprint(i, " rank ", m.Context().Rank(), " grad ", m.GradEnabled()), nil
}

func TestWorkersInheritTheMode(t *testing.T) {
	c := core.NewRankContext(3, nil)
	defer c.Free()
	for _, workers := range []int{0, 2} {
		l, err := NewLoader[string](ranked{numbers(3)}, collect, Options{Workers: workers})
		require.NoError(t, err)
		var got [][]string
		core.WithContext(c, func() {
			core.NoGrad(func() { got = epochs(t, l, 1) })
		})
		require.Equal(t, [][]string{{"0 rank 3 grad false"}, {"1 rank 3 grad false"}, {"2 rank 3 grad false"}}, got)
	}
}

// A pass may be begun on a locked thread and read on another, as scopes and modes lock and unlock.
func TestPassMovesBetweenThreads(t *testing.T) {
	for _, workers := range []int{0, 2} {
		l, err := NewLoader(numbers(4), collect, Options{Workers: workers})
		require.NoError(t, err)
		it, err := NewIterableLoader(counter{n: 4}, collect, Options{Workers: workers})
		require.NoError(t, err)
		for _, start := range []func() *Pass[[]int]{
			func() *Pass[[]int] { return l.Start(t.Context()) }, func() *Pass[[]int] { return it.Start(t.Context()) },
		} {
			var pass *Pass[[]int]
			core.Tidy(func() { pass = start() })
			for i := range 4 {
				var batch []int
				var err error
				if i%2 == 0 {
					core.NoGrad(func() { batch, err = pass.Next() })
				} else {
					batch, err = pass.Next()
				}
				require.NoError(t, err)
				require.Equal(t, []int{i}, batch)
			}
			done := make(chan struct{})
			go func() {
				runtime.LockOSThread()
				pass.Close()
				close(done)
			}()
			<-done
		}
	}
}

// handle counts how often it was released.
type handle struct{ released *int }

func (h handle) Release() { *h.released++ }

func TestAbandonedBatchesAreReleased(t *testing.T) {
	for _, workers := range []int{1, 3} {
		made, released := make([]int, 20), make([]int, 20)
		collate := func(samples []int) (handle, error) {
			if samples[0]%5 == 4 { // what comes with an error is not a batch: releasing it would panic
				return handle{}, errBroken
			}
			made[samples[0]]++
			return handle{&released[samples[0]]}, nil
		}
		l, err := NewLoader(numbers(20), collate, Options{Workers: workers})
		require.NoError(t, err)
		n := 0
		for batch, err := range l.Epoch(t.Context()) {
			require.NoError(t, err)
			Release(batch)
			if n++; n == 3 {
				break
			}
		}
		require.Equal(t, made, released)

		made, released = make([]int, 20), make([]int, 20)
		it, err := NewIterableLoader(counter{n: 20}, collate, Options{Workers: workers})
		require.NoError(t, err)
		for batch, err := range it.Epoch(t.Context()) {
			require.NoError(t, err)
			Release(batch)
			break
		}
		require.Equal(t, made, released)
	}
}

func TestReleaseWalksBatches(t *testing.T) {
	x, y, z := core.Scalar(1.0), core.Scalar(2.0), core.Scalar(3.0)
	n := 0
	Release(nil)
	Release(5)
	Release((*core.Tensor)(nil))
	Release([]string{"a"})
	Release(struct {
		X    *core.Tensor
		List [][]*core.Tensor
		Map  map[string]any
		Name string
		left *core.Tensor
	}{X: x, List: [][]*core.Tensor{{y}, nil}, Map: map[string]any{"h": handle{&n}, "n": nil}, left: z})
	require.Error(t, x.Usable("test"))
	require.Error(t, y.Usable("test"))
	require.NoError(t, z.Usable("test"))
	require.Equal(t, 1, n)
}
