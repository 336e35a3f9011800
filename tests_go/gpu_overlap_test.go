package tests_go

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
)

// 17. The first bucket's average is there although the devices have not got to the end of backward: they stand still before the
// gradients of the first layer until it is.
func TestCase17OnEveryDevice(t *testing.T) {
	needGPU(t)
	for _, devices := range [][]string{{"cpu:0", "cpu:1"}, {"cpu:0"}, {"gpu:0"}, {"gpu:0", "cpu:0"}} {
		err := spawn(t, 2, devices, func(r *collective.Rank) error {
			averaged := make(chan struct{})
			pause := nn.NewFunc(func(x *core.Tensor) *core.Tensor {
				x.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
					stay(r.Device, averaged)
					return nil
				}})
				return op.Tanh(x)
			})
			core.ManualSeed(1)
			m := nn.NewSequential(nn.NewLinear(features, 16, nn.LinearOptions{}), pause, nn.NewLinear(16, 2, nn.LinearOptions{}))
			if err := nn.ToDevice(m, r.Device); err != nil {
				return err
			}
			p, err := ddp.New(m, r.World, ddp.Options{FirstBucketBytes: 1, BucketBytes: 1, BucketView: true})
			if err != nil {
				return err
			}
			err = p.Reducer().RegisterHook(func(b *ddp.Bucket) (*core.Tensor, error) {
				w := b.Group().AllReduce(b.Buffer(), collective.Avg)
				if b.Index() == 0 {
					go func() {
						w.Event().Wait()
						close(averaged)
					}()
				}
				return b.Buffer(), nil
			})
			if err != nil {
				return err
			}
			x, y := samples(0, 5*r.Rank, 5*r.Rank+5, r.Device)
			e := op.Sub(nn.Call(p, x), y)
			if err := autograd.Backward(op.Mean(op.Mul(e, e), nil, false)); err != nil {
				return err
			}
			return core.CurrentContext().Stream(r.Device).Synchronize()
		})
		require.NoError(t, err, "%v", devices)
	}
}

// stay keeps the current stream of a device from going on until the channel is closed.
func stay(d core.Device, until <-chan struct{}) {
	s := core.CurrentContext().Stream(d)
	c := s.Begin(-1, "stay")
	c.Work = math.MaxInt // on the stream's own thread
	c.Fn = func() error {
		select {
		case <-until:
			return nil
		case <-time.After(limit / 2):
			return core.Errorf(core.StateError, "stay", "the first bucket was not averaged before backward's end")
		}
	}
	s.Launch(c)
}

// What a rank gives to a gather has come to the host although its device is busy with what the gathered memory waits for.
func TestGatheredPartsLeaveBeforeThereIsRoom(t *testing.T) {
	needGPU(t)
	const n = 1000
	err := spawn(t, 2, []string{"gpu:0", "cpu:0"}, func(r *collective.Rank) error {
		in := op.ToDevice(op.Full([]int{n}, core.Num(float64(r.Rank+1)), op.TensorOptions{}), r.Device)
		out := op.ToDevice(op.Zeros(2*n), r.Device)
		s := core.CurrentContext().Stream(r.Device)
		if err := s.Synchronize(); err != nil {
			return err
		}
		made, free := s.Record(), make(chan struct{})
		if r.Rank == 0 {
			stay(r.Device, free)
		}
		before := r.World.Stats().Staged
		w := r.World.AllGatherMade([]*core.Tensor{out}, []*core.Tensor{in}, [][]int{{n, n}}, made)
		if r.Rank == 0 {
			// What is to go back is counted when what was fetched is there.
			for start := time.Now(); r.World.Stats().Staged-before < 4*(n+n); {
				if time.Since(start) > limit/4 {
					return fmt.Errorf("%d bytes were moved", r.World.Stats().Staged-before)
				}
				time.Sleep(time.Millisecond)
			}
			close(free)
		}
		if err := w.Wait(); err != nil {
			return err
		}
		got, err := core.Values[float32](out)
		if err != nil || got[0] != 1 || got[n-1] != 1 || got[n] != 2 || got[2*n-1] != 2 {
			return fmt.Errorf("got %v, %v", got, err)
		}
		return nil
	})
	require.NoError(t, err)
}

// A rank has what it gathers while the device of another stands still and has nothing yet.
func TestAGatherEndsOnEachDevice(t *testing.T) {
	needGPU(t)
	const n = 1000
	free := make(chan struct{})
	err := spawn(t, 2, []string{"cpu:0", "gpu:0"}, func(r *collective.Rank) error {
		in := op.ToDevice(op.Full([]int{n}, core.Num(float64(r.Rank+1)), op.TensorOptions{}), r.Device)
		out := op.ToDevice(op.Zeros(2*n), r.Device)
		s := core.CurrentContext().Stream(r.Device)
		if err := s.Synchronize(); err != nil {
			return err
		}
		made := s.Record()
		if r.Rank == 1 {
			stay(r.Device, free)
		}
		w := r.World.AllGatherMade([]*core.Tensor{out}, []*core.Tensor{in}, [][]int{{n, n}}, made)
		if err := w.Wait(); err != nil {
			return err
		}
		if r.Rank == 0 {
			close(free)
		}
		got, err := core.Values[float32](out)
		if err != nil || got[0] != 1 || got[n-1] != 1 || got[n] != 2 || got[2*n-1] != 2 {
			return fmt.Errorf("got %v, %v", got, err)
		}
		return nil
	})
	require.NoError(t, err)
}
