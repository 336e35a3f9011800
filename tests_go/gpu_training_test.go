package tests_go

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/dataparallel"
	"github.com/plait-ml/plait/parallel/ddp"
)

const features = 6

// network returns a model on a device, the same on any.
func network(d core.Device) (nn.Layer, error) {
	core.ManualSeed(3)
	m := nn.NewSequential(nn.NewLinear(features, 16, nn.LinearOptions{}), nn.NewTanh(), nn.NewLinear(16, 2, nn.LinearOptions{}))
	return m, nn.ToDevice(m, d)
}

// samples returns rows [from, to) of a table of inputs and targets, on a device.
func samples(step, from, to int, d core.Device) (x, y *core.Tensor) {
	var a, b []float32
	for i := from; i < to; i++ {
		sum := 0.0
		for k := range features {
			v := math.Sin(float64(7*i + 3*k + step))
			sum += v
			a = append(a, float32(v))
		}
		b = append(b, float32(math.Cos(sum)), float32(sum/3))
	}
	return op.ToDevice(core.FromSlice(a, to-from, features), d), op.ToDevice(core.FromSlice(b, to-from, 2), d)
}

// train makes steps of a model on rows [from, to) and returns its parameters.
func train(m nn.Layer, from, to int, d core.Device) ([]float32, error) {
	forward := func(x *core.Tensor) *core.Tensor { return nn.Call(m, x) }
	if err := fit(nn.Parameters(m), forward, from, to, d, nil); err != nil {
		return nil, err
	}
	return parameters(m)
}

// fit makes steps of an optimiser of params on rows [from, to). between, if not nil, runs before each backward pass.
func fit(params []*core.Tensor, forward func(x *core.Tensor) *core.Tensor, from, to int, d core.Device, between func(step int)) error {
	optimizer, err := optim.NewAdam(params, optim.Hyper{"lr": 0.01})
	if err != nil {
		return err
	}
	for step := range 4 {
		x, y := samples(step, from, to, d)
		e := op.Sub(forward(x), y)
		if between != nil {
			between(step)
		}
		if err := autograd.Backward(op.Mean(op.Mul(e, e), nil, false)); err != nil {
			return err
		}
		if err := optimizer.Step(); err != nil {
			return err
		}
		optimizer.ZeroGrad()
	}
	return nil
}

func parameters(m nn.Module) (all []float32, err error) {
	for _, p := range nn.Parameters(m) {
		v, err := core.Values[float32](p)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

// oneDevice returns the parameters after training on the joined batch.
func oneDevice(t *testing.T, rows int) []float32 {
	cpu, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	m, err := network(cpu)
	require.NoError(t, err)
	want, err := train(m, 0, rows, cpu)
	require.NoError(t, err)
	return want
}

// 14. and 15. Ranks on GPUs, and on GPUs and CPUs together, train as one device does on the joined batch, and all have the same
// parameters.
func TestCase14And15OnGPUs(t *testing.T) {
	needGPU(t)
	const each = 5
	for _, world := range []int{2, 3} {
		want := oneDevice(t, world*each)
		for name, devices := range places {
			for variant, options := range map[string]ddp.Options{
				"default": {}, "small buckets": {FirstBucketBytes: 1, BucketBytes: 100}, "views": {BucketView: true},
				"delayed": {DelayAllReduce: true},
			} {
				got := make([][]float32, world)
				err := spawn(t, world, devices, func(r *collective.Rank) error {
					m, err := network(r.Device)
					if err != nil {
						return err
					}
					p, err := ddp.New(m, r.World, options)
					if err != nil {
						return err
					}
					got[r.Rank], err = train(p, r.Rank*each, (r.Rank+1)*each, r.Device)
					return err
				})
				require.NoError(t, err, "%s, %s", name, variant)
				require.InDeltaSlice(t, want, got[0], 1e-4, "%s, %s", name, variant)
				for r := range got {
					if len(devices) == 1 {
						require.Equal(t, got[0], got[r], "%s, %s: rank %d", name, variant, r)
					}
					require.InDeltaSlice(t, got[0], got[r], 1e-5, "%s, %s: rank %d", name, variant, r)
				}
			}
		}
	}
}

// 23. Gradients packed to bfloat16 cross half as many bytes.
func TestCase23PackedOnGPUs(t *testing.T) {
	needGPU(t)
	staged := map[bool]int{}
	for _, packed := range []bool{false, true} {
		err := spawn(t, 2, []string{"gpu:0"}, func(r *collective.Rank) error {
			m, err := network(r.Device)
			if err != nil {
				return err
			}
			p, err := ddp.New(m, r.World, ddp.Options{})
			if err != nil {
				return err
			}
			if packed {
				if err := p.Reducer().RegisterHook(ddp.CompressHook(core.BFloat16, nil)); err != nil {
					return err
				}
			}
			before := r.World.Stats().Staged
			got, err := train(p, 5*r.Rank, 5*r.Rank+5, r.Device)
			if r.Rank == 0 {
				staged[packed] = r.World.Stats().Staged - before
				require.InDeltaSlice(t, oneDevice(t, 10), got, 0.05)
			}
			return err
		})
		require.NoError(t, err)
	}
	require.Equal(t, staged[false], 2*staged[true])
}

// 8. The thread that drives the devices waits for none of them where it gathers outputs and gradients.
func TestCase08WaitsForNoDevice(t *testing.T) {
	needGPU(t)
	there, err := core.OpenDevice("gpu:0")
	require.NoError(t, err)
	leave := make(chan struct{})
	core.Tidy(func() {
		x := op.Full([]int{3}, core.Num(2), op.TensorOptions{}).Detach().SetRequiresGrad(true)
		y := op.Mul(x, core.Num(3))
		s := core.CurrentContext().Stream(y.Device())
		c := s.Begin(-1, "hold").Out(y)
		c.Fn = func() error { <-leave; return nil }
		c.Work = math.MaxInt32 // on the stream's own thread
		s.Launch(c)
		z := op.Sum(dataparallel.Gather([]*core.Tensor{y}, there, 0), nil, false)
		require.NoError(t, z.Err())
		require.False(t, y.WaitFor(0)) // and yet the calls return
		close(leave)
		require.NoError(t, autograd.Backward(z))
		v, err := core.Values[float32](x.Grad())
		require.NoError(t, err)
		require.Equal(t, []float32{3, 3, 3}, v)
		sum, err := z.Item()
		require.NoError(t, err)
		require.EqualValues(t, 18, sum)
	})
}

// 8. One thread trains a model on a GPU and the CPU as on one device.
func TestCase08OnGPUs(t *testing.T) {
	needGPU(t)
	for _, devices := range [][]string{{"gpu:0", "cpu:0"}, {"cpu:0", "gpu:0"}} {
		first, err := core.OpenDevice(devices[0])
		require.NoError(t, err)
		m, err := network(first)
		require.NoError(t, err)
		p, err := dataparallel.New(m, devices, dataparallel.Options{})
		require.NoError(t, err)
		got, err := train(p, 0, 7, first)
		require.NoError(t, err)
		require.InDeltaSlice(t, oneDevice(t, 7), got, 1e-4)
		p.Release()
	}
}
