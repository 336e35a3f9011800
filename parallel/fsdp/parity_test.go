package fsdp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// trainSharded trains a sharded model, each rank on its rows of the global batch, and returns the full parameters.
func trainSharded(r *collective.Rank, policy fsdp.Policy, o fsdp.Options, optimiser string, steps, rows int) ([]float64, error) {
	m := model()
	f, err := fsdp.New(m, r.World, policy, o)
	if err != nil {
		return nil, err
	}
	opt, err := optimisers[optimiser](nn.Parameters(m))
	if err != nil {
		return nil, err
	}
	for s := range steps {
		x, y := batch(s, r.Rank*rows, (r.Rank+1)*rows)
		if _, err := step(f.Forward, opt, x, y); err != nil {
			return nil, err
		}
	}
	all, err := fullParams(f)
	opt.Release()
	return all, errors.Join(err, f.Close())
}

// TestCase28Parity checks that k steps match one device on the global batch, and match DDP bitwise, with every combination of
// resharding and prefetching.
func TestCase28Parity(t *testing.T) {
	for _, world := range []int{1, 2, 3, 4} {
		for _, optimiser := range []string{"adam", "momentum", "sgd"}[:coretest.Rounds(3)] {
			var want []float64
			in64(t, func() {
				var err error
				want, err = trainOneDevice(model(), optimiser, 4, 3*world)
				require.NoError(t, err)
			})
			spawn(t, world, func(r *collective.Rank) error {
				m := model()
				d, err := ddp.New(m, r.World, ddp.Options{})
				if err != nil {
					return err
				}
				opt, err := optimisers[optimiser](nn.Parameters(m))
				if err != nil {
					return err
				}
				for s := range 4 {
					x, y := batch(s, r.Rank*3, (r.Rank+1)*3)
					if _, err := step(d.Forward, opt, x, y); err != nil {
						return err
					}
				}
				same, err := values(nn.Parameters(m))
				if err != nil {
					return err
				}
				for _, o := range []fsdp.Options{
					{},
					{KeepAfterForward: true},
					{Partial: map[int]int{1: 1, 2: 1, 3: 3, 4: 2}[world]},
					{NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever},
					{BackwardPrefetch: fsdp.PrefetchAfter},
					{Slots: 3},
					{ShardDim: func(p fsdp.Named) int { return p.Tensor.Dim() - 1 }},
				} {
					for i, policy := range []fsdp.Policy{nil, blocks, fsdp.BySize(40)} {
						what := fmt.Sprintf("%s, %+v, policy %d, %d ranks", optimiser, o, i, world)
						got, err := trainSharded(r, policy, o, optimiser, 4, 3)
						if err != nil {
							return fmt.Errorf("%s: %w", what, err)
						}
						if err := errors.Join(near(what, got, want, 1e-9), equal(what+" beside DDP", got, same)); err != nil {
							return err
						}
					}
				}
				return d.Close()
			})
		}
	}
}
