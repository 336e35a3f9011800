package ddp_test

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
	"github.com/stretchr/testify/require"
)

// Helpers that the tests of all parallel packages share.
var (
	in64       = ranktest.In64
	batch      = ranktest.Batch
	mse        = ranktest.MSE
	near       = ranktest.Near
	equal      = ranktest.Equal
	optimisers = ranktest.Optimisers
)

// spawn runs fn on n ranks that share two devices, with float64 as the default dtype.
func spawn(t *testing.T, n int, fn func(r *collective.Rank) error) {
	t.Helper()
	require.NoError(t, trySpawn(n, fn))
}

func trySpawn(n int, fn func(r *collective.Rank) error) error {
	return ranktest.Spawn(n, func(rank int) uint64 { return uint64(100 + rank) }, fn) // a different seed on each rank
}

const width = ranktest.Width

// mlp is the model of most tests.
func mlp() *nn.Sequential {
	return nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), nn.NewTanh(), nn.NewLinear(8, 5, nn.LinearOptions{}),
		nn.NewSigmoid(), nn.NewLinear(5, 2, nn.LinearOptions{}))
}

// values returns all parameters of m, one after the other.
func values(m nn.Module) ([]float64, error) { return ranktest.Values(nn.Parameters(m)) }

// grads returns all gradients of m, one after the other; NaN for a missing one.
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

// rankMLP returns seededMLP on rank 0. The other ranks get different parameters, which the broadcast from rank 0 must replace.
func rankMLP(r *collective.Rank, seed uint64) *nn.Sequential {
	if r.Rank == 0 {
		return seededMLP(seed)
	}
	return mlp()
}

// seededMLP returns mlp with parameters from a seed.
func seededMLP(seed uint64) *nn.Sequential {
	core.ManualSeed(seed)
	return mlp()
}

// small makes several buckets of mlp.
var small = ddp.Options{FirstBucketBytes: 1, BucketBytes: 200}
