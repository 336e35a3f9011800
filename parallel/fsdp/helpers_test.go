package fsdp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
	"github.com/stretchr/testify/require"
)

// What tests of other packages of ranks share.
var (
	in64       = ranktest.In64
	batch      = ranktest.Batch
	mse        = ranktest.MSE
	near       = ranktest.Near
	equal      = ranktest.Equal
	optimisers = ranktest.Optimisers
	values     = ranktest.Values
)

// spawn runs fn on n ranks that share two devices, with float64 as the default dtype.
func spawn(t *testing.T, n int, fn func(r *collective.Rank) error) {
	t.Helper()
	require.NoError(t, trySpawn(n, fn))
}

func trySpawn(n int, fn func(r *collective.Rank) error) error {
	return ranktest.Spawn(n, func(int) uint64 { return 7 }, fn)
}

const width = ranktest.Width

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

// gathered returns all parameters of a divided model in full, in the order of nn.NamedParameters of the plain one.
func gathered(f *fsdp.FullyShardedDataParallel) (all []float64, err error) {
	err = f.Summon(fsdp.SummonOptions{}, func() error {
		all, err = values(nn.Parameters(f.Module))
		return err
	})
	return all, err
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
