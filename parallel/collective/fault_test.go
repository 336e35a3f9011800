package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestCase04Disagreement makes ranks call different collectives. All must get an error that says what each has called, and their
// tensors stay unchanged.
func TestCase04Disagreement(t *testing.T) {
	cases := map[string]struct {
		call func(r *Rank, x *core.Tensor) *Work
		want []string
	}{
		"shape": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 1 {
				x = core.FromSlice([]float64{1, 2})
			}
			return r.World.AllReduce(x, Sum)
		}, []string{"all_reduce", "#1", "rank 1 calls", "float64[3]", "float64[2]"}},
		"dtype": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 2 {
				x = op.To(x, core.Float32)
			}
			return r.World.AllReduce(x, Sum)
		}, []string{"rank 2 calls", "float32[3]"}},
		"operation": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 0 {
				return r.World.Broadcast(x, 0)
			}
			return r.World.AllReduce(x, Sum)
		}, []string{"broadcast(root 0)", "all_reduce(sum)"}},
		"reduction": {func(r *Rank, x *core.Tensor) *Work {
			if r.Rank == 0 {
				return r.World.AllReduce(x, Max)
			}
			return r.World.AllReduce(x, Min)
		}, []string{"all_reduce(max)", "all_reduce(min)", "rank 0 calls"}},
		"pieces": {func(r *Rank, x *core.Tensor) *Work {
			out := op.To(op.Zeros(9), core.Float64)
			if r.Rank == 1 {
				out = op.To(op.Zeros(12), core.Float64)
			}
			return r.World.AllGatherInto(out, x)
		}, []string{"all_gather"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			got := map[int]error{}
			require.NoError(t, spawn(3, nil, longTimeout, func(r *Rank) error {
				x := core.FromSlice([]float64{1, 2, 3})
				err := c.call(r, x).Wait()
				mu.Lock()
				got[r.Rank] = err
				mu.Unlock()
				v, err := core.Values[float64](x)
				if err == nil && !slices.Equal(v, []float64{1, 2, 3}) {
					err = fmt.Errorf("the tensor became %v", v)
				}
				return err
			}))
			for rank := range 3 {
				require.Error(t, got[rank])
				kind, _ := core.KindOf(got[rank])
				assert.Equal(t, core.DistributedError, kind)
			}
			for _, part := range c.want {
				found := false
				for _, err := range got {
					found = found || err != nil && strings.Contains(err.Error(), part)
				}
				assert.True(t, found, "no rank's error has %q: %v", part, got)
			}
		})
	}
}

// TestFailedCollectiveFailsItsTensor checks that the output of a failed asynchronous collective reports its error, until the
// error is read from the work.
func TestFailedCollectiveFailsItsTensor(t *testing.T) {
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		x := core.FromSlice(make([]float64, 2+r.Rank))
		w := r.World.AllReduce(x, Sum)
		y := op.Add(x, core.Num(1))
		if _, err := y.Item(); err == nil {
			return errors.New("no error from what depends on a failed collective")
		}
		if _, err := core.Values[float64](y); err == nil {
			return errors.New("no error from what depends on a failed collective")
		}
		core.CurrentContext().Stream(r.Device).TakeError()
		if w.Wait() == nil {
			return errors.New("no error from the work")
		}
		_, err := core.Values[float64](x)
		return err
	}))
}

// TestOutOfMemoryWhileOthersWait makes an allocation fail before a rank arrives at a collective. The rank may wait for memory of
// the other ranks' work only for a limited time, because they may be waiting for this rank. The allocation then fails.
func TestOutOfMemoryWhileOthersWait(t *testing.T) {
	d, err := core.OpenDevice("cpu:7")
	require.NoError(t, err)
	limited := d.(interface{ SetMemoryLimit(bytes int) })
	limited.SetMemoryLimit(64 << 20)
	defer limited.SetMemoryLimit(0)
	gone := make(chan struct{})
	require.NoError(t, spawn(2, []string{"cpu:7"}, longTimeout, func(r *Rank) error {
		x := op.Ones(100)
		if r.Rank == 0 {
			<-gone
			require.ErrorContains(t, op.Ones(64<<20).Err(), "out of memory")
			return r.World.AllReduce(x, Sum).Wait()
		}
		w := r.World.AllReduce(x, Sum)
		y := op.Mul(x, core.Num(2)) // waits for the other rank
		close(gone)
		if err := w.Wait(); err != nil {
			return err
		}
		v, err := core.Values[float32](y)
		require.Equal(t, float32(4), v[0])
		return err
	}))
}

// TestRankFails checks that if a rank fails, returns or panics while others wait for it, their errors name it.
func TestRankFails(t *testing.T) {
	for name, end := range map[string]func() error{
		"error":  func() error { return errors.New("out of luck") },
		"return": func() error { return nil },
		"panic":  func() error { panic("out of luck") },
	} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int32
			err := spawn(3, nil, longTimeout, func(r *Rank) error {
				if r.Rank == 2 {
					return end()
				}
				pair, err := r.World.WithTimeout(time.Minute).New([]int{0, 1}, Options{})
				if err == nil { // rank 2 ended first, and never created the group
					return errors.Join(errors.New("made a group without rank 2"), pair.Close())
				}
				if strings.Contains(err.Error(), "rank 2 is gone") {
					told.Add(1)
				}
				if later := r.World.Barrier(); later == nil {
					return errors.New("a barrier without rank 2")
				}
				return nil
			})
			assert.EqualValues(t, 2, told.Load())
			if name == "return" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "rank 2: ")
				require.ErrorContains(t, err, "out of luck")
			}
		})
	}
}

// TestTimeout checks that if a rank never arrives, the other ranks get an error at the timeout that says what it called last.
func TestTimeout(t *testing.T) {
	var mu sync.Mutex
	var logged string
	over := make(chan struct{})
	o := Options{Timeout: 50 * time.Millisecond, Log: func(s string) {
		mu.Lock()
		logged += s
		mu.Unlock()
	}}
	err := spawn(3, nil, o, func(r *Rank) error {
		if err := r.World.WithTimeout(time.Minute).AllReduce(filled(2, 1), Sum).Wait(); err != nil {
			return err
		}
		if r.Rank == 1 {
			<-over
			return nil
		}
		err := r.World.Broadcast(filled(3, 1), 0).Wait()
		if r.Rank == 0 {
			close(over)
		}
		return err
	})
	require.ErrorContains(t, err, "broadcast #2: rank 1 has not arrived within 50ms, ranks 0 and 2 wait (the last call of rank 1: #1 all_reduce(sum) of float64[2], done)")
	mu.Lock()
	defer mu.Unlock()
	assert.Contains(t, logged, "rank 1 (1 in the world), the last of 1 operations")
	assert.Contains(t, logged, "#2 broadcast(root 0) of float64[3]")
}

func TestMonitoredBarrier(t *testing.T) {
	over := make(chan struct{})
	err := spawn(4, nil, Options{Log: func(string) {}}, func(r *Rank) error {
		if r.Rank == 1 || r.Rank == 3 {
			<-over
			return nil
		}
		err := r.World.MonitoredBarrier(500 * time.Millisecond)
		if r.Rank == 0 {
			close(over)
		}
		return err
	})
	require.ErrorContains(t, err, "monitored_barrier #1: ranks 1 and 3 have not arrived within 500ms")
}
