package fsdp_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
)

// TestKernelOutOfMemoryWithOptimisersInHooks makes a kernel of one rank lack memory when it runs, so that later passes report it. Updates of
// shards and buffers that were skipped for it must leave them unchanged on every rank, with the optimisers' states. The program must get
// the error once, and training goes on.
func TestKernelOutOfMemoryWithOptimisersInHooks(t *testing.T) {
	for _, forward := range []bool{true, false} {
		spawn(t, 2, func(r *collective.Rank) error {
			core.ManualSeed(3)
			late := &ranktest.LateOOM{}
			first := nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{})) // gets the failed gradient
			last := nn.NewSequential(nn.NewBatchNorm1d(8, nn.BatchNormOptions{}), nn.NewLinear(8, 2, nn.LinearOptions{}))
			f, err := fsdp.New(nn.NewSequential(first, late, last), r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			optims, err := optimisersInHooks(f.Module, optimisers["adam"])
			if err != nil {
				return err
			}
			pass := func(i int) (err error) {
				core.Tidy(func() {
					x, y := batch(i, r.Rank*2, r.Rank*2+2)
					err = autograd.Backward(mse(f.Forward(x), y))
				})
				return err
			}
			unchanged := func() (map[string][]float64, error) {
				state, err := stateOf(f, optims)
				maps.DeleteFunc(state, func(name string, _ []float64) bool {
					return !strings.HasPrefix(name, "0.") && (!forward || r.Rank == 0 || name == "2.0.num_batches_tracked")
				})
				return state, err
			}
			if err := pass(0); err != nil {
				return err
			}
			before, err := unchanged()
			if err != nil {
				return err
			}
			late.InForward, late.InBackward = forward && r.Rank == 1, !forward && r.Rank == 1
			err = pass(1)
			late.InForward, late.InBackward = false, false
			for i := 2; err == nil && i < 4; i++ {
				err = pass(i)
			}
			if kind, _ := core.KindOf(err); kind != core.MemoryError {
				return fmt.Errorf("want an error about memory, got %w", err)
			}
			after, err := unchanged()
			if err != nil || !maps.EqualFunc(after, before, slices.Equal) {
				return fmt.Errorf("after the failed pass: got %v, want %v (%w)", after, before, err)
			}
			for i := range 2 {
				if err := pass(4 + i); err != nil {
					return fmt.Errorf("pass %d: %w", 4+i, err)
				}
			}
			_, err = stateOf(f, optims)
			return errors.Join(err, f.Close())
		})
	}
}
