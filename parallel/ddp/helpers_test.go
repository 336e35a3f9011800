package ddp_test

import (
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
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// spawn runs fn on n ranks that share two devices, with float64 as the default dtype.
func spawn(t *testing.T, n int, fn func(r *collective.Rank) error) {
	t.Helper()
	require.NoError(t, trySpawn(n, fn))
}

func trySpawn(n int, fn func(r *collective.Rank) error) error {
	o := collective.Options{Timeout: 2 * time.Minute, Log: func(string) {}}
	return collective.Spawn(n, []string{"cpu:0", "cpu:1"}, o, func(r *collective.Rank) error {
		if err := core.CurrentContext().SetDefaultDType(core.Float64); err != nil {
			return err
		}
		core.ManualSeed(uint64(100 + r.Rank)) // every rank starts with other parameters
		return fn(r)
	})
}

// in64 runs fn with float64 as the default dtype, in one process.
func in64(t *testing.T, fn func()) {
	ctx := core.NewRankContext(0, nil)
	defer ctx.Free()
	require.NoError(t, ctx.SetDefaultDType(core.Float64))
	core.WithContext(ctx, fn)
}

const width = 6

// mlp is the model of most tests.
func mlp() *nn.Sequential {
	return nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), nn.NewTanh(), nn.NewLinear(8, 5, nn.LinearOptions{}),
		nn.NewSigmoid(), nn.NewLinear(5, 2, nn.LinearOptions{}))
}

// batch returns rows [from, to) of an endless table of samples: step's inputs and targets.
func batch(step, from, to int) (x, y *core.Tensor) {
	var a, b []float64
	for i := from; i < to; i++ {
		rng := rand.New(rand.NewPCG(uint64(step), uint64(i)))
		s := 0.0
		for range width {
			v := rng.Float64()*2 - 1
			a = append(a, v)
			s += v
		}
		b = append(b, math.Sin(s), s/3)
	}
	d := core.CurrentContext().DefaultDType()
	return op.To(core.FromSlice(a, to-from, width), d), op.To(core.FromSlice(b, to-from, 2), d)
}

func mse(y, want *core.Tensor) *core.Tensor {
	e := op.Sub(y, want)
	return op.Mean(op.Mul(e, e), nil, false)
}

// values returns all parameters of m, one after the other.
func values(m nn.Module) ([]float64, error) {
	var all []float64
	for _, p := range nn.Parameters(m) {
		v, err := core.Values[float64](p)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

func grads(m nn.Module) ([]float64, error) {
	var all []float64
	for _, p := range nn.Parameters(m) {
		if p.Grad() == nil {
			all = append(all, math.NaN())
			continue
		}
		v, err := core.Values[float64](p.Grad())
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

// near returns an error unless a and b agree to a relative tolerance.
func near(what string, a, b []float64, tol float64) error {
	if len(a) != len(b) {
		return fmt.Errorf("%s: %d values and %d", what, len(a), len(b))
	}
	for i := range a {
		if math.IsNaN(a[i]) != math.IsNaN(b[i]) || math.Abs(a[i]-b[i]) > tol*(1+math.Abs(b[i])) {
			return fmt.Errorf("%s: value %d is %v, want %v", what, i, a[i], b[i])
		}
	}
	return nil
}

func equal(what string, a, b []float64) error { return near(what, a, b, 0) }

// rates are optimisers by name.
var optimisers = map[string]func(p []*core.Tensor) (*optim.Optimizer, error){
	"sgd": func(p []*core.Tensor) (*optim.Optimizer, error) { return optim.NewSGD(p, optim.Hyper{"lr": 0.1}) },
	"momentum": func(p []*core.Tensor) (*optim.Optimizer, error) {
		return optim.NewSGD(p, optim.Hyper{"lr": 0.1, "momentum": 0.9})
	},
	"adam": func(p []*core.Tensor) (*optim.Optimizer, error) { return optim.NewAdam(p, optim.Hyper{"lr": 0.01}) },
}

// step runs one step of training m on the batch and returns the loss.
func step(m nn.Layer, o *optim.Optimizer, x, y *core.Tensor) (loss float64, err error) {
	core.Tidy(func() {
		o.ZeroGrad()
		l := mse(nn.Call(m, x), y)
		if err = autograd.Backward(l); err != nil {
			return
		}
		if err = o.Step(); err != nil {
			return
		}
		loss, err = l.Item()
	})
	return loss, err
}

// start returns the parameters that every rank starts with: rank 0's.
func start(seed uint64, m nn.Module) error {
	other := mlpLike(seed)
	_, err := nn.LoadStateDict(m, nn.StateDict(other), true)
	return err
}

func mlpLike(seed uint64) *nn.Sequential {
	core.ManualSeed(seed)
	return mlp()
}

// small makes the buckets so small that there are several.
var small = ddp.Options{FirstBucketBytes: 1, BucketBytes: 200}
