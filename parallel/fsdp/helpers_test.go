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

// Helpers that tests of other parallel packages use too.
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

// trySpawn is spawn that returns the error.
func trySpawn(n int, fn func(r *collective.Rank) error) error {
	return ranktest.Spawn(n, func(int) uint64 { return 7 }, fn)
}

const width = ranktest.Width

// A scaleLayer multiplies by a parameter without dimensions.
type scaleLayer struct {
	nn.Base
	Scale *core.Tensor
}

func newScaleLayer() *scaleLayer {
	s := core.Scalar(1.25).Keep()
	s.SetRequiresGrad(true)
	return &scaleLayer{Scale: s}
}

func (g *scaleLayer) Forward(x *core.Tensor) *core.Tensor { return op.Mul(x, g.Scale) }

// model returns the model of most tests. Its parameters' rows are divisible by the number of ranks, or not divisible, or fewer
// than it, or a scalar.
func model() *nn.Sequential {
	core.ManualSeed(3)
	return nn.NewSequential(
		nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), nn.NewTanh()),
		nn.NewSequential(nn.NewLinear(8, 5, nn.LinearOptions{}), newScaleLayer(), nn.NewSigmoid()),
		nn.NewSequential(nn.NewLinear(5, 8, nn.LinearOptions{}), nn.NewTanh()),
		nn.NewLinear(8, 2, nn.LinearOptions{}))
}

// blocks wraps the nn.Sequential submodules of [model].
var blocks = fsdp.ByType(&nn.Sequential{})

// fullParams returns all full parameters of a sharded model, in the order of nn.NamedParameters of the plain one.
func fullParams(f *fsdp.FullyShardedDataParallel) (all []float64, err error) {
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

// trainOneDevice trains a plain copy of the model on the global batch and returns its parameters.
func trainOneDevice(m nn.Layer, optimiser string, steps, samples int) ([]float64, error) {
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

// contains returns an error unless err contains want.
func contains(err error, want string) error {
	if err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("got %v, want %s", err, want)
	}
	return nil
}
