package dataparallel_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/dataparallel"
	"github.com/stretchr/testify/require"
)

const width = 6

var devices = []string{"cpu:0", "cpu:1", "cpu:2"}

// in64 runs fn with float64 as the default dtype.
func in64(t *testing.T, fn func()) {
	ctx := core.NewRankContext(0, nil)
	defer ctx.Free()
	require.NoError(t, ctx.SetDefaultDType(core.Float64))
	core.WithContext(ctx, fn)
}

func batch(seed, n int) (x, y *core.Tensor) {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	a, b := make([]float64, n*width), make([]float64, n*2)
	for i := range a {
		a[i] = rng.Float64()*2 - 1
	}
	for i := range b {
		b[i] = math.Sin(a[i*width/2])
	}
	return core.FromSlice(a, n, width), core.FromSlice(b, n, 2)
}

func mse(y, want *core.Tensor) *core.Tensor {
	e := op.Sub(y, want)
	return op.Mean(op.Mul(e, e), nil, false)
}

func mlp(seed uint64) *nn.Sequential {
	core.ManualSeed(seed)
	shared := nn.NewLinear(8, 8, nn.LinearOptions{})
	return nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), nn.NewTanh(), shared, nn.NewSigmoid(), shared, nn.NewLinear(8, 2, nn.LinearOptions{}))
}

func grads(t *testing.T, m nn.Module) (all []float64) {
	for _, p := range nn.Parameters(m) {
		require.NotNil(t, p.Grad())
		v, err := core.Values[float64](p.Grad())
		require.NoError(t, err)
		all = append(all, v...)
	}
	return all
}

func values(t *testing.T, list ...*core.Tensor) (all []float64) {
	for _, x := range list {
		v, err := core.Values[float64](x)
		require.NoError(t, err)
		all = append(all, v...)
	}
	return all
}

func parallel(t *testing.T, m nn.Module, o dataparallel.Options) *dataparallel.DataParallel {
	return parallelOn(t, m, devices, o)
}

func parallelOn(t *testing.T, m nn.Module, devices []string, o dataparallel.Options) *dataparallel.DataParallel {
	d, err := dataparallel.New(m, devices, o)
	require.NoError(t, err)
	t.Cleanup(d.Release)
	return d
}

// Case 8: output, loss and gradients equal those of one device, for any batch size and weights, on different devices and with several
// replicas on one.
func TestCase08AsOneDevice(t *testing.T) {
	for _, on := range [][]string{devices, {"cpu:0", "cpu:0", "cpu:0"}, {"cpu:0", "cpu:1", "cpu:0"}} {
		t.Run(fmt.Sprint(on), func(t *testing.T) { asOneDevice(t, on) })
	}
}

func asOneDevice(t *testing.T, on []string) {
	in64(t, func() {
		for _, n := range []int{1, 2, 3, 4, 30} {
			for _, weights := range [][]float64{nil, {3, 1, 1}, {0, 1, 2}} {
				x, y := batch(n, n)
				one := mlp(7)
				out := one.Forward(x)
				loss := mse(out, y)
				require.NoError(t, autograd.Backward(loss))

				m := mlp(7)
				d := parallelOn(t, m, on, dataparallel.Options{Weights: weights, OutputDevice: "cpu:1"})
				got := d.Forward(x)
				require.NoError(t, got.Err())
				require.Equal(t, "cpu:1", got.Device().String())
				there, err := core.OpenDevice("cpu:1")
				require.NoError(t, err)
				gotLoss := mse(got, op.ToDevice(y, there))
				require.NoError(t, autograd.Backward(gotLoss))
				what := fmt.Sprint(n, " samples by ", weights, ": ", d.Sizes())
				require.InDeltaSlice(t, values(t, out), values(t, got), 1e-12, what)
				require.InDeltaSlice(t, values(t, loss), values(t, gotLoss), 1e-12, what)
				require.InDeltaSlice(t, grads(t, one), grads(t, m), 1e-12, what)
			}
		}
	})
}

// pair takes two inputs and returns a sum per sample and one number per replica.
type pair struct {
	nn.Base
	Layer *nn.Linear
}

func (p *pair) both(a, b *core.Tensor) []*core.Tensor {
	y := p.Layer.Forward(op.Mul(a, b))
	return []*core.Tensor{y, op.Mean(y, nil, false)}
}

// Case 8: several inputs and outputs. 0-d outputs become a vector with one element per replica, whose mean can be weighted by the sizes.
func TestCase08SeveralInputsAndScalars(t *testing.T) {
	in64(t, func() {
		m := &pair{Layer: nn.NewLinear(width, 3, nn.LinearOptions{})}
		d := parallel(t, m, dataparallel.Options{})
		a, _ := batch(1, 7)
		b, _ := batch(2, 7)
		out := d.Run(func(m nn.Module, in []*core.Tensor) []*core.Tensor { return m.(*pair).both(in[0], in[1]) }, a, b)
		require.Len(t, out, 2)
		require.NoError(t, out[0].Err())
		require.Equal(t, []int{7, 3}, out[0].Shape())
		require.Equal(t, []int{3}, out[1].Shape())
		require.Equal(t, []int{3, 3, 1}, d.Sizes())
		want := m.both(a, b)
		require.InDeltaSlice(t, values(t, want[0]), values(t, out[0]), 1e-12)
		mean := dataparallel.Mean(out[1], d.Sizes())
		require.InDeltaSlice(t, values(t, want[1]), values(t, mean), 1e-12)
		require.NoError(t, autograd.Backward(want[1]))
		alone := grads(t, m)
		nn.ZeroGrad(m)
		require.NoError(t, autograd.Backward(mean))
		require.InDeltaSlice(t, alone, grads(t, m), 1e-12)
		require.ErrorContains(t, dataparallel.Mean(out[1], []int{7}).Err(), "1 parts")
	})
}

// Case 9: gradients accumulate on the module, and every device sees an optimiser step in the next pass.
func TestCase09Training(t *testing.T) {
	in64(t, func() {
		train := func(m nn.Layer, params []*core.Tensor) (all []float64) {
			o, err := optim.NewAdam(params, optim.Hyper{"lr": 0.05})
			require.NoError(t, err)
			for s := range 5 {
				core.Tidy(func() {
					x, y := batch(s, 10)
					o.ZeroGrad()
					for range 2 { // gradients of two passes accumulate
						require.NoError(t, autograd.Backward(mse(nn.Call(m, x), y)))
					}
					require.NoError(t, o.Step())
				})
			}
			return values(t, params...)
		}
		one := mlp(3)
		want := train(one, nn.Parameters(one))
		m := mlp(3)
		d := parallel(t, m, dataparallel.Options{})
		require.InDeltaSlice(t, want, train(d, nn.Parameters(d)), 1e-9)
		for name := range nn.StateDict(d) {
			require.Contains(t, name, "module.")
		}
		// The gradients are right with create_graph too.
		x, y := batch(9, 5)
		second := func(m nn.Layer, params []*core.Tensor) []float64 {
			g, err := autograd.Grad([]*core.Tensor{mse(nn.Call(m, x), y)}, params[:1], nil, autograd.Options{CreateGraph: true})
			require.NoError(t, err)
			gg, err := autograd.Grad([]*core.Tensor{op.Sum(op.Mul(g[0], g[0]), nil, false)}, params[:1], nil, autograd.Options{})
			require.NoError(t, err)
			return values(t, gg[0])
		}
		require.InDeltaSlice(t, second(one, nn.Parameters(one)), second(d, nn.Parameters(m)), 1e-9)
	})
}

// Case 10: the first device's replica updates the module's own buffers.
func TestCase10Buffers(t *testing.T) {
	in64(t, func() {
		bn := nn.NewBatchNorm1d(width, nn.BatchNormOptions{})
		d := parallel(t, nn.NewSequential(bn), dataparallel.Options{})
		alone := nn.NewBatchNorm1d(width, nn.BatchNormOptions{})
		x, _ := batch(1, 12)
		require.NoError(t, d.Forward(x).Err())
		require.NoError(t, alone.Forward(op.Narrow(x, 0, 0, 4)).Err())
		require.InDeltaSlice(t, values(t, alone.RunningMean, alone.RunningVar), values(t, bn.RunningMean, bn.RunningVar), 1e-12)
		// In evaluation mode every replica uses the buffers.
		nn.Eval(d)
		nn.Eval(alone)
		require.InDeltaSlice(t, values(t, alone.Forward(x)), values(t, d.Forward(x)), 1e-12)
	})
}

// Case 11: the error for a parameter on the wrong device names it and both devices.
func TestCase11WrongDevice(t *testing.T) {
	there, err := core.OpenDevice("cpu:1")
	require.NoError(t, err)
	m := nn.NewLinear(2, 2, nn.LinearOptions{})
	require.NoError(t, nn.ToDevice(m, there))
	_, err = dataparallel.New(m, []string{"cpu:0", "cpu:1"}, dataparallel.Options{})
	require.ErrorContains(t, err, "must be on cpu:0, the first device, but weight is on cpu:1")
	for _, c := range []struct {
		devices []string
		o       dataparallel.Options
		want    string
	}{
		{nil, dataparallel.Options{}, "no devices"},
		{[]string{"nowhere:0"}, dataparallel.Options{}, "nowhere"},
		{[]string{"cpu:1"}, dataparallel.Options{Weights: []float64{1, 2}}, "2 weights for 1 devices"},
		{[]string{"cpu:1", "cpu:0"}, dataparallel.Options{Weights: []float64{1, -2}}, "not negative"},
		{[]string{"cpu:1", "cpu:0"}, dataparallel.Options{Weights: []float64{0, 0}}, "not all be 0"},
		{[]string{"cpu:1"}, dataparallel.Options{OutputDevice: "nowhere"}, "nowhere"},
	} {
		_, err := dataparallel.New(m, c.devices, c.o)
		require.ErrorContains(t, err, c.want)
	}
}

// Case 12: the error or panic of a replica names it. No goroutine leaks.
func TestCase12ReplicaFails(t *testing.T) {
	in64(t, func() {
		x, _ := batch(1, 9)
		for _, panics := range []bool{false, true} {
			m := nn.NewSequential(nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewFunc(func(x *core.Tensor) *core.Tensor {
				if x.Device().Index() != 1 {
					return x
				}
				if panics {
					panic("lost")
				}
				return op.MatMul(x, x)
			}))
			d := parallel(t, m, dataparallel.Options{})
			for range 20 {
				err := d.Forward(x).Err()
				require.ErrorContains(t, err, "replica 1 on cpu:1")
				if panics {
					require.ErrorContains(t, err, "lost")
				} else {
					require.ErrorContains(t, err, "matmul")
				}
			}
			require.NoError(t, core.Synchronize())
		}
		d := parallel(t, mlp(1), dataparallel.Options{})
		require.ErrorContains(t, d.Forward(core.Scalar(1.0)).Err(), "got only 0-d inputs")
		require.Error(t, d.Forward(core.ErrorTensor(errors.New("before"))).Err())
	})
}

// Case 13: weighted slices, see also case 8. Measuring finds the slow device.
func TestCase13Weights(t *testing.T) {
	for _, c := range []struct {
		n       int
		weights []float64
		want    []int
	}{
		{8, []float64{3, 1}, []int{6, 2}},
		{7, []float64{3, 1}, []int{5, 2}},
		{1, []float64{3, 1}, []int{1, 0}},
		{10, []float64{1, 1, 1}, []int{4, 3, 3}},
		{2, []float64{0, 1, 0}, []int{0, 2, 0}},
		{5, nil, []int{5}},
		{5, nil, []int{3, 2}},
		{5, nil, []int{2, 2, 1}},
		{2, nil, []int{1, 1, 0}},
		{0, []float64{1, 1}, []int{0, 0}},
	} {
		require.Equal(t, c.want, dataparallel.Sizes(c.n, len(c.want), c.weights), "%v", c)
	}
	in64(t, func() {
		slow := nn.NewSequential(nn.NewBatchNorm1d(width, nn.BatchNormOptions{}), nn.NewFunc(func(x *core.Tensor) *core.Tensor {
			if x.Device().Index() == 2 {
				sleep(x, 200*time.Millisecond)
			}
			return x
		}))
		d := parallel(t, slow, dataparallel.Options{Measure: true})
		x, _ := batch(1, 30)
		before := values(t, nn.StateDict(slow)["0.running_mean"])
		forward := func(m nn.Module, in []*core.Tensor) []*core.Tensor {
			return []*core.Tensor{nn.Call(m.(nn.Layer), in[0])}
		}
		parts := map[int]int{} // number of passes by number of samples
		require.NoError(t, d.Measure(func(m nn.Module, in []*core.Tensor) []*core.Tensor {
			parts[in[0].Size(0)]++
			return forward(m, in)
		}, x))
		require.Equal(t, map[int]int{10: 9}, parts)
		found := false
		for range 10 { // any device may stall on a busy machine
			require.NoError(t, d.Measure(forward, x))
			w := d.Weights()
			if found = w[2] < w[0] && w[2] < w[1]; found {
				break
			}
		}
		require.True(t, found)
		require.Equal(t, before, values(t, nn.StateDict(slow)["0.running_mean"]))
		drops := parallel(t, nn.NewDropout(0.5), dataparallel.Options{Measure: true})
		seed, offset := core.CurrentContext().Generator(device(t, 0)).State()
		require.NoError(t, drops.Measure(forward, x))
		after, moved := core.CurrentContext().Generator(device(t, 0)).State()
		require.Equal(t, []uint64{seed, offset}, []uint64{after, moved})
		nn.Eval(slow) // a device may get one sample, too few for batch statistics
		require.NoError(t, d.Forward(x).Err())
		require.Less(t, d.Sizes()[2], 15)
		nn.Train(slow)
		require.NoError(t, d.SetWeights([]float64{28, 1, 1}))
		require.ErrorContains(t, d.Forward(x).Err(), "replica 1 on cpu:1: batch_norm: training needs more than one value")
		require.NoError(t, d.SetWeights(nil))
		require.ErrorContains(t, d.SetWeights([]float64{1}), "1 weights")
	})
}

// Gradients are summed during backward: those of the last layer are ready although a device is stuck in the first layer.
func TestSumsBesideBackward(t *testing.T) {
	in64(t, func() {
		leave := make(chan struct{})
		const wide = dataparallel.BucketBytes/8/8 + 1
		m := nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), nn.NewFunc(func(x *core.Tensor) *core.Tensor {
			y := op.Mul(x, core.Num(1))
			y.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
				if g.Device().Index() == 1 {
					hold(g, leave)
				}
				return nil
			}})
			return y
		}), nn.NewLinear(8, wide, nn.LinearOptions{NoBias: true}))
		d := parallelOn(t, m, devices[:2], dataparallel.Options{})
		x, _ := batch(1, 2)
		require.NoError(t, autograd.Backward(op.Mean(d.Forward(x), nil, false)))
		params := nn.Parameters(m)
		there := params[2].Grad().WaitFor(time.Minute)
		early := params[0].Grad().WaitFor(0)
		close(leave)
		require.True(t, there)
		require.False(t, early)
		require.NoError(t, core.Synchronize())
	})
}

// hold blocks the device of x until leave is closed.
func hold(x *core.Tensor, leave chan struct{}) {
	s := core.CurrentContext().Stream(x.Device())
	c := s.Begin(-1, "hold")
	c.Fn = func() error { <-leave; return nil }
	c.Work = math.MaxInt32 // runs on the stream's thread, not the caller's
	s.Launch(c)
}

// sleep blocks the device of x for a while.
func sleep(x *core.Tensor, d time.Duration) {
	s := core.CurrentContext().Stream(x.Device())
	c := s.Begin(-1, "sleep")
	c.Fn = func() error { time.Sleep(d); return nil }
	c.Work = math.MaxInt32 // runs on the stream's thread, not the caller's
	s.Launch(c)
}

// A pass frees all its memory.
func TestMemoryIsGivenBack(t *testing.T) {
	in64(t, func() {
		m := mlp(1)
		d := parallel(t, m, dataparallel.Options{})
		x, y := batch(1, 12)
		run := func() {
			core.Tidy(func() {
				nn.ZeroGrad(m)
				require.NoError(t, autograd.Backward(mse(d.Forward(x), y)))
			})
			require.NoError(t, core.Synchronize())
		}
		run()
		dev := device(t, 2)
		before := core.RankUsage(dev, 0).Current
		for range 5 {
			run()
		}
		require.LessOrEqual(t, core.RankUsage(dev, 0).Current, before)
		d.Release()
		require.Less(t, core.RankUsage(dev, 0).Current, before)
	})
}
