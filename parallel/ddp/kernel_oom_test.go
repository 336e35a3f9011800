package ddp_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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

// TestKernelOutOfMemory makes a kernel of one rank lack memory when it runs, so that a later pass reports it. The optimiser's step was skipped
// by then. It must leave parameters and states unchanged on every rank. No later call may report the error again, and training goes on as if
// the failed pass had never been tried.
func TestKernelOutOfMemory(t *testing.T) {
	for _, options := range []ddp.Options{{}, small} {
		want := trainWithLateOOM(t, options, -1, false)
		for i := range 4 { // on rank 0, whose buffers the other rank gets, and on rank 1
			victim, forward := i%2, i < 2
			got := trainWithLateOOM(t, options, victim, forward)
			for rank := range got {
				require.NoError(t, equal(fmt.Sprintf("rank %d after a failure of rank %d, forward %v", rank, victim, forward), got[rank], want[0]))
			}
		}
	}
}

// trainWithLateOOM trains on two ranks for three steps. A kernel of the victim fails in the second, in forward or in backward, and that step
// is repeated. It returns the final parameters of each rank.
func trainWithLateOOM(t *testing.T, options ddp.Options, victim int, forward bool) (finals [2][]float64) {
	t.Helper()
	spawn(t, 2, func(r *collective.Rank) error {
		core.ManualSeed(3)
		late := &ranktest.LateOOM{}
		p, err := ddp.New(nn.NewSequential(nn.NewLinear(width, 8, nn.LinearOptions{}), late, nn.NewBatchNorm1d(8, nn.BatchNormOptions{}),
			nn.NewLinear(8, 2, nn.LinearOptions{})), r.World, options)
		if err != nil {
			return err
		}
		o, err := optim.NewAdam(nn.Parameters(p), nil)
		if err != nil {
			return err
		}
		pass := func(i int) (err, stepErr error) { // does not wait for the values
			core.Tidy(func() {
				o.ZeroGrad()
				x, y := batch(i, r.Rank*2, r.Rank*2+2)
				if err = autograd.Backward(mse(nn.Call(p, x), y)); err == nil {
					stepErr = o.Step()
				}
			})
			return err, stepErr
		}
		if err := errors.Join(pass(0)); err != nil {
			return err
		}
		if victim >= 0 {
			before, err := stateOf(o)
			if err != nil {
				return err
			}
			late.InForward, late.InBackward = forward && r.Rank == victim, !forward && r.Rank == victim
			err, _ = pass(1)
			late.InForward, late.InBackward = false, false
			for i := 2; err == nil && i < 4; i++ {
				err, _ = pass(i) // an optimiser may know before, on this rank alone
			}
			if kind, _ := core.KindOf(err); kind != core.MemoryError {
				return fmt.Errorf("want an error about memory, got %w", err)
			}
			after, err := stateOf(o)
			if err != nil {
				return fmt.Errorf("after the failed pass: %w", err)
			}
			for name := range before {
				if !slices.Equal(after[name], before[name]) {
					return fmt.Errorf("after the failed pass %s is %v, want %v", name, after[name], before[name])
				}
			}
		}
		for i := range 2 {
			if err := errors.Join(pass(1 + i)); err != nil {
				return fmt.Errorf("pass %d: %w", 1+i, err)
			}
		}
		for _, n := range nn.NamedTensors(p) { // buffers, too
			if err := n.Tensor.Wait(); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		finals[r.Rank], err = values(p)
		return errors.Join(err, p.Close())
	})
	return finals
}

// stateOf returns the values of the optimiser's parameters, with their states and counts of steps, by number and name.
func stateOf(o *optim.Optimizer) (map[string][]float64, error) {
	all := map[string][]float64{}
	for i, p := range o.Groups()[0].Params() {
		kept, _ := o.State(i)
		tensors := maps.Clone(kept.Tensors)
		tensors["value"] = p
		for name, x := range tensors {
			v, err := core.Values[float64](x.Detach())
			if err != nil {
				return nil, fmt.Errorf("%s of parameter %d: %w", name, i, err)
			}
			all[fmt.Sprint(name, " ", i)] = append(v, kept.Step)
		}
	}
	return all, nil
}
