package gpu_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

// onSignals runs fn on two processes whose GPUs take signals, once they reach each other.
func onSignals(net *wiretest.Net, first int, timeout time.Duration, fn func(r *collective.Rank) error) error {
	o := collective.Options{Timeout: timeout, Log: func(string) {}}
	return onProcesses(net, []int{1, 1}, linkedNames(first, 2), o, func(r *collective.Rank) error {
		if err := meet(r); err != nil {
			return err
		}
		return fn(r)
	})
}

// makeLate has the rank's device take a while to make a tensor, or to fail to.
func makeLate(r *collective.Rank, x *core.Tensor, after time.Duration, failure error) error {
	stream := core.CurrentContext().Stream(r.Device)
	c := stream.Begin(-1, "late").Out(x)
	c.Fn = func() error {
		time.Sleep(after)
		return failure
	}
	return core.Launch(stream, c)
}

// TestSignalsHoldBackWhatFollows checks that results are right for what reads them at once, with many collectives on the way, and two channels
// that the ranks use in different orders.
func TestSignalsHoldBackWhatFollows(t *testing.T) {
	const n, rounds = 3000, 40
	fn := func(r *collective.Rank) ([][]byte, error) {
		rng := rand.New(rand.NewPCG(uint64(r.Rank), 5))
		channels := []*collective.Group{r.World.Channel(), r.World.Channel()}
		sums, full := []*core.Tensor{numbers(r, n, 1), numbers(r, n, 2)}, numbers(r, 2*n, 3)
		var works collective.Works
		var all [][]byte
		for i := range rounds {
			for _, k := range [][]int{{0, 1}, {1, 0}}[(i+r.Rank)%2] {
				works = append(works, channels[k].AllReduce(sums[k], collective.Avg))
			}
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
			}
			if i%10 == 9 {
				works = append(works, r.World.AllGatherInto(full, sums[0]))
				for _, x := range append(sums, full) {
					b, err := x.Bytes()
					if err != nil {
						return nil, err
					}
					all = append(all, bytes.Clone(b))
				}
			}
		}
		return all, works.Wait()
	}
	got, awaited := make([][][]byte, 2), gpu.Awaited()
	require.NoError(t, onSignals(wiretest.New(2, 50*time.Microsecond, 3), 110, linkLimit, func(r *collective.Rank) (err error) {
		got[r.Rank], err = fn(r)
		return err
	}))
	require.GreaterOrEqual(t, gpu.Awaited()-awaited, rounds)
	require.Equal(t, onLinked(t, []string{"cpu:0", "cpu:0"}, fn), got)
}

// TestSignalsOfFailures checks that the failure of one rank's tensor, found after all ranks have launched what follows, fails that everywhere, and
// that the ranks can go on.
func TestSignalsOfFailures(t *testing.T) {
	require.NoError(t, onSignals(wiretest.New(2, 50*time.Microsecond, 4), 120, linkLimit, func(r *collective.Rank) error {
		for range 5 {
			x, y := numbers(r, 5000, 1), numbers(r, 5000, 2)
			if r.Rank == 1 {
				if err := makeLate(r, x, 5*time.Millisecond, errors.New("it is broken")); err != nil {
					return err
				}
			}
			works := collective.Works{r.World.AllReduce(x, collective.Sum), r.World.AllReduce(y, collective.Sum)}
			z := op.Neg(x)
			works = append(works, r.World.AllReduce(z, collective.Sum))
			w := op.Neg(z)
			for _, failed := range []*core.Tensor{x, z, w} {
				assert.ErrorContains(t, failed.Wait(), "it is broken", "rank %d", r.Rank)
			}
			assert.ErrorContains(t, works[0].Wait(), "it is broken", "rank %d", r.Rank)
			assert.NoError(t, works[1].Wait())
			assert.ErrorContains(t, works[2].Wait(), "it is broken", "rank %d", r.Rank)
			assert.NoError(t, y.Wait())
			_ = core.CurrentContext().Stream(r.Device).TakeError()
		}
		return nil
	}))
}

// TestSignalsThatNeverCome checks that a GPU which waits for a process that is lost goes on, and tells which results are not valid.
func TestSignalsThatNeverCome(t *testing.T) {
	net := wiretest.New(2, 0, 5)
	require.NoError(t, onSignals(net, 130, linkLimit, func(r *collective.Rank) error {
		x, y := numbers(r, 5000, 1), numbers(r, 5000, 2)
		if r.Rank == 1 {
			if err := makeLate(r, x, 300*time.Millisecond, nil); err != nil {
				return err
			}
			time.AfterFunc(50*time.Millisecond, func() { net.Lose(1, false) })
		}
		works := collective.Works{r.World.AllReduce(x, collective.Sum), r.World.AllReduce(y, collective.Sum)}
		z := op.Neg(x)
		assert.Error(t, works.Wait(), "rank %d", r.Rank)
		for _, failed := range []*core.Tensor{x, y, z} {
			assert.Error(t, failed.Wait(), "rank %d", r.Rank)
		}
		_ = core.CurrentContext().Stream(r.Device).TakeError()
		assert.NoError(t, numbers(r, 100, 3).Wait(), "the device goes on")
		return nil
	}))
}

// TestSignalsThatTakeTooLong checks the timeout of a rank whose tensors are never ready.
func TestSignalsThatTakeTooLong(t *testing.T) {
	require.NoError(t, onSignals(wiretest.New(2, 0, 6), 140, time.Second, func(r *collective.Rank) error {
		x := numbers(r, 5000, 1)
		if r.Rank == 1 {
			if err := makeLate(r, x, 4*time.Second, nil); err != nil {
				return err
			}
		}
		start := time.Now()
		err := r.World.AllReduce(x, collective.Sum).Wait()
		assert.Error(t, err, "rank %d", r.Rank)
		if r.Rank == 0 {
			assert.ErrorContains(t, err, "were not ready within 1s")
			assert.Less(t, time.Since(start), 4*time.Second)
		}
		return nil
	}))
}

// TestSignalsLeaveNothing checks that the queues of a world's jobs end with it, also if it is closed as soon as its last job has ended.
func TestSignalsLeaveNothing(t *testing.T) {
	queues := 0
	for i := range 6 {
		require.NoError(t, onSignals(wiretest.New(2, 0, 7), 150, linkLimit, func(r *collective.Rank) error {
			return r.World.AllReduce(numbers(r, 3000, 1), collective.Sum).Wait()
		}))
		if i == 0 {
			queues = gpu.OpenQueues()
		}
	}
	require.Eventually(t, func() bool { return gpu.OpenQueues() <= queues }, time.Second, time.Millisecond)
}
