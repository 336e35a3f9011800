package ddp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// If a rank fails in a step, training on the other ranks ends with an error that names it, for all options and hooks. Their parameters stay
// as they were before the step.
func TestFailedRank(t *testing.T) {
	for variant, options := range variants() {
		for _, hook := range []ddp.Hook{nil, ddp.CompressHook(core.BFloat16, nil)} {
			err := trySpawn(3, func(r *collective.Rank) error {
				p, err := ddp.New(mlp(), r.World, options)
				if err != nil {
					return err
				}
				if hook != nil {
					if err := p.Reducer().RegisterHook(hook); err != nil {
						return err
					}
				}
				o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{"lr": 0.1})
				if err != nil {
					return err
				}
				var before []float64
				for s := range 5 {
					if s == 2 {
						if r.Rank == 1 {
							return errors.New("out of luck")
						}
						if before, err = values(p); err != nil {
							return err
						}
					}
					x, y := batch(s, r.Rank*4, r.Rank*4+4)
					_, failed := step(p, o, x, y)
					if failed == nil {
						continue // steps 2 and 3 may be launched before rank 1 fails, step 4 waits for step 2's outcome
					}
					if s < 2 {
						return fmt.Errorf("step %d: %w", s, failed)
					}
					after, err := values(p)
					if err != nil { // an execution error, which is reported once
						if after, err = values(p); err != nil {
							return err
						}
					}
					if err := equal("parameters", after, before); err != nil {
						return err
					}
					return failed
				}
				return errors.New("training went on without rank 1")
			})
			require.ErrorContains(t, err, "rank 1: out of luck", variant)
			for _, r := range []int{0, 2} {
				require.Regexp(t, fmt.Sprintf(`rank %d: .*rank 1 is gone: out of luck`, r), err.Error(), variant)
			}
		}
	}
}
