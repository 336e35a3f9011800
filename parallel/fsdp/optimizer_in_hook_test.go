package fsdp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
	"github.com/stretchr/testify/require"
)

// TestFailedPassWithOptimisersInHooks gives each parameter an SGD optimiser that steps in a hook during backward, and makes each
// allocation of one rank's pass fail in turn. On every rank, each shard and buffer must have its value from before or from after
// the step. Training then goes on.
func TestFailedPassWithOptimisersInHooks(t *testing.T) {
	for i := range 4 {
		at, forward := i%2, i < 2
		want, _ := stepInHooks(t, forward, at, -1)
		for k := 1; ; k++ {
			got, failed := stepInHooks(t, forward, at, k)
			if !failed {
				require.Greater(t, k, 5)
				break
			}
			for rank, s := range got {
				for name, v := range s[1] {
					if !slices.Equal(v, want[rank][0][name]) && !slices.Equal(v, want[rank][1][name]) {
						t.Errorf("allocation %d of step %d, rank %d: %s is %v, want %v or %v",
							k, at, rank, name, v, want[rank][0][name], want[rank][1][name])
					}
				}
			}
		}
	}
}

// stepInHooks makes three steps of [batchNormModel] in which each parameter has an optimiser that steps in a hook. Allocation k
// of rank 1's forward or backward pass in step at fails. It returns the state of each rank before and after that step, and
// whether the step has failed.
func stepInHooks(t *testing.T, forward bool, at, k int) (states [2][2]map[string][]float64, failed bool) {
	t.Helper()
	defer core.SetAllocFault(nil)
	var told [2]bool
	spawn(t, 2, func(r *collective.Rank) error {
		f, err := fsdp.New(batchNormModel(), r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		for _, n := range nn.NamedParameters(f.Module) {
			o, err := optimisers["sgd"]([]*core.Tensor{n.Tensor})
			if err != nil {
				return err
			}
			n.Tensor.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
				if err := o.Step(); err != nil {
					return core.ErrorTensor(err)
				}
				o.ZeroGrad()
				return nil
			}})
		}
		fail := func(on bool) {
			switch {
			case r.Rank != 1:
			case on:
				ranktest.FailAllocation(1, k)
			default:
				core.SetAllocFault(nil)
			}
		}
		for s := 0; s < 3; s++ {
			faulty := s == at && !told[r.Rank]
			if faulty {
				if states[r.Rank][0], err = stateOf(f); err != nil {
					return err
				}
			}
			core.Tidy(func() {
				x, y := batch(s, r.Rank*2, r.Rank*2+2)
				fail(faulty && forward)
				out := f.Forward(x)
				fail(false)
				if err = out.Err(); err != nil {
					return
				}
				loss := mse(out, y)
				fail(faulty && !forward)
				err = autograd.Backward(loss)
				fail(false)
			})
			if kind, _ := core.KindOf(err); err != nil && (!faulty || kind != core.MemoryError) {
				return fmt.Errorf("step %d: %w", s, err)
			}
			if faulty {
				told[r.Rank] = err != nil
				if states[r.Rank][1], err = stateOf(f); err != nil {
					return fmt.Errorf("after the failed step: %w", err)
				}
				if told[r.Rank] {
					s--
				}
			}
		}
		_, err = stateOf(f)
		return errors.Join(err, f.Close())
	})
	require.Equal(t, told[0], told[1], "allocation %d", k)
	return states, told[1]
}

// stateOf returns the values of this rank's shards and buffers by name.
func stateOf(f *fsdp.FullyShardedDataParallel) (map[string][]float64, error) {
	state := map[string][]float64{}
	for _, n := range nn.NamedTensors(f.Module) {
		v, err := core.Values[float64](op.To(n.Tensor.Detach(), core.Float64))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		state[n.Name] = v
	}
	return state, nil
}
