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
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
	"github.com/stretchr/testify/require"
)

// TestFailedPassWithOptimisersInHooks gives each parameter an optimiser that steps in a hook during backward, and makes each
// allocation of one rank's pass fail in turn. Each shard must then be as before the step or as after it, with the optimiser's states
// and count of steps. Each buffer must have its value from before or after. Training then goes on: if no shard had changed, as if the
// failed pass had never been tried.
func TestFailedPassWithOptimisersInHooks(t *testing.T) {
	for name, make := range map[string]func(p []*core.Tensor) (*optim.Optimizer, error){
		"adam": optimisers["adam"],
		"sgd":  optimisers["sgd"],
		"momentum": func(p []*core.Tensor) (*optim.Optimizer, error) { // whose first step is another than those after it
			return optim.NewSGD(p, optim.Hyper{"lr": 0.1, "momentum": 0.9, "dampening": 0.5})
		},
	} {
		if testing.Short() && name != "adam" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for i := range 4 {
				at, forward := i%2, i < 2
				want, _ := stepInHooks(t, make, forward, at, -1)
				for k := 1; ; k += coretest.Stride() {
					got, failed := stepInHooks(t, make, forward, at, k)
					if !failed {
						require.Greater(t, k, 5)
						break
					}
					if err := checkFailedStep(got, want); err != nil {
						t.Errorf("allocation %d of step %d: %v", k, at, err)
					}
				}
			}
		})
	}
}

// The states of each rank before a step, after it, and in the end.
type statesOfStep [2][3]map[string][]float64

// checkFailedStep compares the states of ranks that have failed in a step and repeated it with those of ranks that have not failed.
func checkFailedStep(got, want statesOfStep) error {
	stepped := false
	for rank := range got {
		for name, v := range got[rank][1] {
			if before, after := want[rank][0][name], want[rank][1][name]; slices.Equal(v, after) {
				stepped = stepped || !isBuffer(name)
			} else if !slices.Equal(v, before) {
				return fmt.Errorf("rank %d: %s is %v, want %v or %v", rank, name, v, before, after)
			}
		}
	}
	for rank := range got {
		for name, v := range got[rank][2] {
			if !stepped && !isBuffer(name) && !slices.Equal(v, want[rank][2][name]) {
				return fmt.Errorf("rank %d: in the end %s is %v, want %v", rank, name, v, want[rank][2][name])
			}
		}
	}
	return nil
}

func isBuffer(name string) bool {
	return strings.Contains(name, "running") || strings.Contains(name, "num_batches")
}

// stepInHooks makes three steps of [batchNormModel] in which each parameter has an optimiser that steps in a hook. Allocation k of rank 1's
// forward or backward pass in step at fails, and that step is repeated. It returns the states of each rank, and whether the step has failed.
func stepInHooks(t *testing.T, make func([]*core.Tensor) (*optim.Optimizer, error), forward bool, at, k int) (states statesOfStep, failed bool) {
	t.Helper()
	defer core.SetAllocFault(nil)
	var told [2]bool
	spawn(t, 2, func(r *collective.Rank) error {
		f, err := fsdp.New(batchNormModel(), r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		optims, err := optimisersInHooks(f.Module, make)
		if err != nil {
			return err
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
				if states[r.Rank][0], err = stateOf(f, optims); err != nil {
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
				if states[r.Rank][1], err = stateOf(f, optims); err != nil {
					return fmt.Errorf("after the failed step: %w", err)
				}
				if told[r.Rank] {
					s--
				}
			}
		}
		states[r.Rank][2], err = stateOf(f, optims)
		return errors.Join(err, f.Close())
	})
	require.Equal(t, told[0], told[1], "allocation %d", k)
	return states, told[1]
}

// optimisersInHooks gives each parameter an optimiser that steps as soon as its gradient is there, and drops it.
func optimisersInHooks(m nn.Module, make func([]*core.Tensor) (*optim.Optimizer, error)) (map[string]*optim.Optimizer, error) {
	all := map[string]*optim.Optimizer{}
	for _, n := range nn.NamedParameters(m) {
		o, err := make([]*core.Tensor{n.Tensor})
		if err != nil {
			return nil, err
		}
		all[n.Name] = o
		n.Tensor.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			if err := o.Step(); err != nil {
				return core.ErrorTensor(err)
			}
			o.ZeroGrad()
			return nil
		}})
	}
	return all, nil
}

// stateOf returns the values of this rank's shards and buffers by name: those of a shard that has an optimiser with the count of steps and
// with its states.
func stateOf(f *fsdp.FullyShardedDataParallel, optims map[string]*optim.Optimizer) (map[string][]float64, error) {
	all := map[string][]float64{}
	for _, n := range nn.NamedTensors(f.Module) {
		tensors := []*core.Tensor{n.Tensor}
		if o := optims[n.Name]; o != nil {
			kept, _ := o.State(0)
			all[n.Name] = append(all[n.Name], kept.Step, kept.Numbers["mu_product"])
			for _, name := range slices.Sorted(maps.Keys(kept.Tensors)) {
				tensors = append(tensors, kept.Tensors[name])
			}
		}
		for _, x := range tensors {
			v, err := values([]*core.Tensor{op.To(x.Detach(), core.Float64)})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.Name, err)
			}
			all[n.Name] = append(all[n.Name], v...)
		}
	}
	return all, nil
}
