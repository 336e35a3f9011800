package dataparallel_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/dataparallel"
	"github.com/stretchr/testify/require"
)

// gate blocks the device of x until the channel is closed.
func gate(x *core.Tensor, open chan struct{}) {
	s := core.CurrentContext().Stream(x.Device())
	c := s.Begin(-1, "gate")
	c.Fn = func() error { <-open; return nil }
	c.Work = math.MaxInt32
	s.Launch(c)
}

// Gradients of a slow device arrive in a later step, exactly once, and within the maximum staleness.
func TestStaleGradients(t *testing.T) {
	in64(t, func() {
		for _, bound := range []int{0, 2, -1} {
			w := op.Zeros(1).Keep().SetRequiresGrad(true)
			r, err := dataparallel.NewReplicas([]*core.Tensor{w}, []string{"w"}, []core.Device{device(t, 0), device(t, 1)})
			require.NoError(t, err)
			require.NoError(t, r.SetSyncMode(dataparallel.SyncMode{Stale: true, Max: bound}))
			open := make(chan struct{})
			if bound == 0 {
				close(open) // the step would block
			}
			total, want := 0.0, 0.0
			for s := range 5 {
				copies, err := r.Replicate(2)
				require.NoError(t, err)
				a := op.Mul(copies[0][0], core.Num(float64(1+s)))
				b := op.ToDevice(op.Mul(copies[1][0], core.Num(float64(10+s))), device(t, 0))
				want += float64(1+s) + float64(10+s)
				if bound != 0 && s == 0 {
					gate(copies[1][0], open)
				}
				w.SetGrad(nil)
				loss := op.Sum(op.Add(a, b), nil, false)
				require.NoError(t, autograd.Backward(loss))
				switch {
				case bound == 0:
					total += values(t, w.Grad())[0]
					require.Equal(t, want, total)
					require.Equal(t, []int{s + 1, s + 1}, r.Clocks())
				case s < 2 || bound < 0:
					require.Equal(t, 0, r.Clocks()[1])
					require.Equal(t, s+1, max(r.Clocks()[0], s+1))
					if w.Grad() != nil {
						total += values(t, w.Grad())[0]
					}
				case s == 2: // step 1's gradient is due, so reading the sum waits for it
					require.Equal(t, 1, r.Clocks()[1])
					close(open)
					total += values(t, w.Grad())[0]
				default:
					total += values(t, w.Grad())[0]
				}
			}
			if bound < 0 {
				close(open)
			}
			w.SetGrad(nil)
			require.NoError(t, r.Flush())
			if w.Grad() != nil {
				total += values(t, w.Grad())[0]
			}
			require.Equal(t, want, total, "bound %d", bound)
			require.Equal(t, []int{5, 5}, r.Clocks())
			if bound > 0 {
				require.Equal(t, bound, r.Staleness())
			}
			r.Release()
		}
	})
}

// Outstanding gradients are added to the module when training becomes synchronous.
func TestStaleGradientsBeforeSynchronousOnes(t *testing.T) {
	w := op.Zeros(1).Keep().SetRequiresGrad(true)
	r, err := dataparallel.NewReplicas([]*core.Tensor{w}, []string{"w"}, []core.Device{device(t, 0), device(t, 1)})
	require.NoError(t, err)
	defer r.Release()
	require.NoError(t, r.SetSyncMode(dataparallel.SyncMode{Stale: true, Max: -1}))
	open := make(chan struct{})
	for _, want := range []float64{11, 22} {
		copies, err := r.Replicate(2)
		require.NoError(t, err)
		if want == 11 {
			gate(copies[1][0], open)
		}
		far := op.ToDevice(op.Mul(copies[1][0], core.Num(10)), device(t, 0))
		require.NoError(t, autograd.Backward(op.Sum(op.Add(copies[0][0], far), nil, false)))
		if want == 11 {
			require.Equal(t, 0, r.Clocks()[1])
			close(open)
			require.NoError(t, r.SetSyncMode(dataparallel.SyncMode{}))
		}
		require.Equal(t, want, values(t, w.Grad())[0])
	}
}

func device(t *testing.T, i int) core.Device {
	d, err := core.OpenDevice(fmt.Sprint("cpu:", i))
	require.NoError(t, err)
	return d
}

// A device continues its backward pass while its gradients wait for those of a slower device.
func TestBackwardDoesNotWaitForSums(t *testing.T) {
	const n = 2600 // n*n floats fill a bucket
	var list []*core.Tensor
	var devs []core.Device
	for range 4 {
		list = append(list, op.Full([]int{n, n}, core.Num(0.01), op.TensorOptions{}).Detach().SetRequiresGrad(true))
	}
	for _, name := range devices[:2] {
		d, err := core.OpenDevice(name)
		require.NoError(t, err)
		devs = append(devs, d)
	}
	r, err := dataparallel.NewReplicas(list, nil, devs)
	require.NoError(t, err)
	defer r.Release()
	core.Tidy(func() {
		copies, err := r.Replicate(2)
		require.NoError(t, err)
		open := make(chan struct{})
		var losses []*core.Tensor
		for d, weights := range copies {
			one := core.FromSlice(make([]float32, n), 1, n)
			x := op.ToDevice(one, devs[d])
			for i, w := range weights {
				x = op.Linear(x, w, nil)
				if d == 0 && i == 1 {
					x.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
						gate(g, open)
						return nil
					}})
				}
			}
			losses = append(losses, op.Sum(x, nil, false))
		}
		require.NoError(t, autograd.Backward(op.Mean(dataparallel.Gather(losses, devs[0], 0), nil, false)))
		done := core.CurrentContext().Stream(devs[1]).Record().WaitFor(20 * time.Second)
		close(open)
		require.True(t, done)
		require.NoError(t, core.Synchronize())
	})
}
