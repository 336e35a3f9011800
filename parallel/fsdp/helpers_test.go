package fsdp_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
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
		core.ManualSeed(7)
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

// gain is a layer with a parameter without dimensions.
type gain struct {
	nn.Base
	Scale *core.Tensor
}

func newGain() *gain {
	s := core.Scalar(1.25).Keep()
	s.SetRequiresGrad(true)
	return &gain{Scale: s}
}

func (g *gain) Forward(x *core.Tensor) *core.Tensor { return op.Mul(x, g.Scale) }

// model is the one of most tests: sizes that divide by the number of ranks, that do not, that are smaller, and a scalar.
func model() *nn.Sequential {
	core.ManualSeed(3)
	return nn.NewSequential(
		nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), nn.NewTanh()),
		nn.NewSequential(nn.NewLinear(8, 5, nn.LinearOptions{}), newGain(), nn.NewSigmoid()),
		nn.NewSequential(nn.NewLinear(5, 8, nn.LinearOptions{}), nn.NewTanh()),
		nn.NewLinear(8, 2, nn.LinearOptions{}))
}

// blocks makes units of the parts of [model] that are sequences.
var blocks = fsdp.ByType(&nn.Sequential{})

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

// values returns all parameters, one after the other.
func values(params []*core.Tensor) ([]float64, error) {
	var all []float64
	for _, p := range params {
		v, err := core.Values[float64](p)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

// gathered returns all parameters of a divided model in full, in the order of nn.NamedParameters of the plain one.
func gathered(f *fsdp.FullyShardedDataParallel) (all []float64, err error) {
	err = f.Summon(fsdp.SummonOptions{}, func() error {
		all, err = values(nn.Parameters(f.Module))
		return err
	})
	return all, err
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

// optimisers by name.
var optimisers = map[string]func(p []*core.Tensor) (*optim.Optimizer, error){
	"sgd": func(p []*core.Tensor) (*optim.Optimizer, error) { return optim.NewSGD(p, optim.Hyper{"lr": 0.1}) },
	"momentum": func(p []*core.Tensor) (*optim.Optimizer, error) {
		return optim.NewSGD(p, optim.Hyper{"lr": 0.1, "momentum": 0.9})
	},
	"adam": func(p []*core.Tensor) (*optim.Optimizer, error) { return optim.NewAdam(p, optim.Hyper{"lr": 0.01}) },
}

// step runs one step of training on the batch and returns the loss.
func step(forward func(x *core.Tensor) *core.Tensor, o *optim.Optimizer, x, y *core.Tensor) (loss float64, err error) {
	core.Tidy(func() {
		o.ZeroGrad()
		l := mse(op.To(forward(x), y.DType()), y)
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

// alone trains a plain copy of the model on the joined batches of so many ranks and returns its parameters.
func alone(m nn.Layer, optimiser string, steps, samples int) ([]float64, error) {
	o, err := optimisers[optimiser](nn.Parameters(m))
	if err != nil {
		return nil, err
	}
	defer o.Release()
	for s := range steps {
		x, y := batch(s, 0, samples)
		if _, err := step(m.Forward, o, x, y); err != nil {
			return nil, err
		}
	}
	return values(nn.Parameters(m))
}

// contains returns an error unless err says what is wanted.
func contains(err error, want string) error {
	if err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("got %v, want %s", err, want)
	}
	return nil
}
