package fsdp_test

import (
	"errors"
	"fmt"
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

// TestOutOfMemoryInAPass makes one allocation on one rank fail. The step must fail on all ranks, and the following steps must not
// be affected.
func TestOutOfMemoryInAPass(t *testing.T) {
	half := core.Float32
	average := func(f *fsdp.FullyShardedDataParallel) error {
		for _, u := range f.Tree().Units() {
			err := u.RegisterHook(func(r *fsdp.Reduction) error {
				parts := make([]int, r.Group.Size())
				for i := range parts {
					parts[i] = r.Part.Numel()
				}
				return r.Group.ReduceScatterParts([]*core.Tensor{r.Part}, []*core.Tensor{r.Full}, [][]int{parts}, collective.Avg).Err()
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	for name, c := range map[string]faultCase{
		"plain":       {},
		"kept":        {options: fsdp.Options{KeepAfterForward: true}},
		"no prefetch": {options: fsdp.Options{NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever}},
		"kept to the next": {prepare: func(f *fsdp.FullyShardedDataParallel) error {
			return eachUnit(f, func(u *fsdp.Unit) { u.SetReshardAfterBackward(false) })
		}},
		"by hand":      {unshard: true},
		"partial":      {world: 4, options: fsdp.Options{Partial: 2}},
		"precision":    {options: fsdp.Options{Precision: fsdp.Precision{Param: &half}}},
		"hook":         {prepare: average},
		"hybrid":       {world: 4, hybrid: true},
		"replicas":     {replicas: true},
		"accumulation": {noSyncPasses: 2},
		"parts":        {twoPart: true},
		"buffers":      {model: batchNormModel},
	} {
		if testing.Short() && name != "plain" && name != "hybrid" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, c.forward = range []bool{false, true} {
				for at := range 2 {
					ranktest.FailEachAllocation(t, at, func(k int) ([]float64, bool) { return c.train(t, at, k) })
				}
			}
		})
	}
}

func eachUnit(f *fsdp.FullyShardedDataParallel, fn func(u *fsdp.Unit)) error {
	for _, u := range f.Tree().Units() {
		fn(u)
	}
	return nil
}

// batchNormModel returns a model whose forward passes update buffers.
func batchNormModel() *nn.Sequential {
	core.ManualSeed(3)
	block := func(in, out int) nn.Layer {
		return nn.NewSequential(nn.NewLinear(in, out, nn.LinearOptions{}), nn.NewBatchNorm1d(out, nn.BatchNormOptions{}))
	}
	return nn.NewSequential(block(width, 8), block(8, 4), nn.NewLinear(4, 2, nn.LinearOptions{}))
}

// A faultCase configures training in which an allocation of one rank's pass fails.
type faultCase struct {
	world        int // 2 if 0
	options      fsdp.Options
	model        func() *nn.Sequential
	prepare      func(f *fsdp.FullyShardedDataParallel) error
	hybrid       bool
	replicas     bool // parameters are replicated
	unshard      bool // call Unshard before each forward pass
	twoPart      bool // two-part backward
	noSyncPasses int  // number of passes without synchronisation before each step
	forward      bool // the forward pass fails, not backward
}

// train runs three steps. Allocation k of rank 1's pass in step at fails. It returns the final parameters, and whether there was
// such an allocation.
func (c faultCase) train(t *testing.T, at, k int) (final []float64, failed bool) {
	t.Helper()
	defer core.SetAllocFault(nil)
	world := max(c.world, 2)
	finals, told := make([][]float64, world), make([]bool, world)
	spawn(t, world, func(r *collective.Rank) error {
		make, group, o := c.model, r.World, c.options
		if make == nil {
			make = model
		}
		var err error
		if c.hybrid {
			if group, o.Replicas, err = hybridGroups(r); err != nil {
				return err
			}
		} else if c.replicas {
			group, o.Replicas = nil, r.World
		}
		f, err := fsdp.New(make(), group, blocks, o)
		if err != nil {
			return err
		}
		if c.prepare != nil {
			if err := c.prepare(f); err != nil {
				return err
			}
		}
		adam, err := optimisers["adam"](nn.Parameters(f.Module))
		if err != nil {
			return err
		}
		fault := func(on bool) {
			switch {
			case r.Rank != 1:
			case on:
				ranktest.FailAllocation(1, k)
			default:
				core.SetAllocFault(nil)
			}
		}
		pass := func(step int, faulty bool) (err error) {
			core.Tidy(func() {
				x, y := batch(step, r.Rank*2, r.Rank*2+2)
				o := autograd.Options{}
				if c.twoPart {
					x = op.Mul(x.SetRequiresGrad(true), core.Num(1))
					o.First = []*core.Tensor{x}
				}
				if c.unshard {
					if err = f.Tree().Units()[1].Unshard(); err != nil {
						return
					}
				}
				fault(faulty && c.forward)
				defer fault(false)
				out := f.Forward(x)
				if err = out.Err(); err != nil {
					return
				}
				fault(false)
				loss := mse(op.To(out, y.DType()), y)
				fault(faulty && !c.forward)
				if err = loss.Err(); err != nil {
					return
				}
				var run *autograd.Run
				if run, err = autograd.NewRun([]*core.Tensor{loss}, nil, o); err != nil {
					return
				}
				defer run.Close()
				if _, err = run.Step(); err == nil && c.twoPart {
					run.Rest()
					_, err = run.Step()
				}
			})
			return err
		}
		for s := 0; s < 3; s++ {
			adam.ZeroGrad()
			for i := 0; i < c.noSyncPasses && err == nil; i++ {
				err = f.NoSync(func() error { return pass(100+10*s+i, false) })
			}
			if err == nil {
				err = pass(s, s == at && !told[r.Rank])
			}
			if err == nil {
				err = adam.Step()
			}
			if kind, _ := core.KindOf(err); err != nil && kind == core.MemoryError && !told[r.Rank] {
				told[r.Rank], err = true, nil
				s--
			} else if err != nil {
				return fmt.Errorf("step %d: %w", s, err)
			}
		}
		for _, n := range nn.NamedTensors(f.Module) {
			if err := n.Tensor.Wait(); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		all, err := fullParams(f)
		finals[r.Rank] = all
		return errors.Join(err, f.Close())
	})
	for rank := range world {
		require.Equal(t, told[1], told[rank], "allocation %d, rank %d", k, rank)
		require.NoError(t, equal("parameters of the ranks", finals[rank], finals[0]))
	}
	return finals[0], told[1]
}
