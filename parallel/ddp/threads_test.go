package ddp_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
)

// Threads that use one module at the same time get an error. The module works afterwards.
func TestThreadsWithOneModule(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		d, err := ddp.New(mlp(), r.World, small)
		if err != nil {
			return err
		}
		pass := func(thread int) (err error) {
			core.Tidy(func() {
				x, y := batch(thread, 0, 4)
				l := mse(nn.Call(d, x), y)
				if err = l.Err(); err == nil {
					err = autograd.Backward(l)
				}
			})
			if err == nil && thread == 2 {
				err = d.Reducer().Wait()
			}
			return err
		}
		if done, err := ranktest.Together(3, 20, pass); err != nil || done == 0 {
			return fmt.Errorf("%d passes succeeded: %w", done, err)
		}
		if err := pass(0); err != nil {
			return err
		}
		return d.Close()
	})
}
