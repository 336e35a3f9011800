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
	"github.com/stretchr/testify/require"
)

// hybridGroups returns the groups of hybrid sharding on four ranks: the two ranks that this rank shards with, and the two that
// have the same shards.
func hybridGroups(r *collective.Rank) (shards, copies *collective.Group, err error) {
	for _, ranks := range [][]int{{0, 1}, {2, 3}, {0, 2}, {1, 3}} {
		g, err := r.World.New(ranks, collective.Options{})
		if err != nil {
			return nil, nil, err
		}
		switch {
		case g == nil:
		case ranks[1]-ranks[0] == 1:
			shards = g
		default:
			copies = g
		}
	}
	return shards, copies, nil
}

// TestCase33HybridSharding checks that two replicas of two ranks train like sharding over four ranks, and replicas alone like
// DDP.
func TestCase33HybridSharding(t *testing.T) {
	const world = 4
	var want []float64
	in64(t, func() {
		var err error
		want, err = trainOneDevice(model(), "adam", 4, 2*world)
		require.NoError(t, err)
	})
	spawn(t, world, func(r *collective.Rank) error {
		shards, copies, err := hybridGroups(r)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			group *collective.Group
			o     fsdp.Options
		}{
			{shards, fsdp.Options{Replicas: copies}},
			{shards, fsdp.Options{Replicas: copies, KeepAfterForward: true}},
			{nil, fsdp.Options{Replicas: r.World}},
		} {
			m := model()
			f, err := fsdp.New(m, c.group, blocks, c.o)
			if err != nil {
				return err
			}
			opt, err := optimisers["adam"](nn.Parameters(m))
			if err != nil {
				return err
			}
			for s := range 4 {
				x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
				if _, err := step(f.Forward, opt, x, y); err != nil {
					return err
				}
			}
			got, err := fullParams(f)
			if err := errors.Join(err, near("parameters", got, want, 1e-9), f.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestHybridBroadcast starts with different values on each rank. With [fsdp.Options.Broadcast] all ranks must get those of rank
// 0, also those that share no group with it.
func TestHybridBroadcast(t *testing.T) {
	spawn(t, 4, func(r *collective.Rank) error {
		shards, copies, err := hybridGroups(r)
		if err != nil {
			return err
		}
		for _, group := range []*collective.Group{shards, nil} {
			replicas := copies
			if group == nil {
				replicas = r.World
			}
			m := model()
			want, err := values(nn.Parameters(m))
			if err != nil {
				return err
			}
			if r.Rank > 0 {
				for _, p := range nn.Parameters(m) {
					nn.InitUniform(p, 5, 6)
				}
			}
			f, err := fsdp.New(m, group, blocks, fsdp.Options{Replicas: replicas, Broadcast: true})
			if err != nil {
				return err
			}
			got, err := fullParams(f)
			if err := errors.Join(err, equal("parameters", got, want), f.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestHybridUnusedParameters uses a parameter on one rank only. Every rank must get the average, also those that share no group
// with that rank. A parameter that no rank uses must get no gradient, also with the all-reduce deferred.
func TestHybridUnusedParameters(t *testing.T) {
	const world = 4
	spawn(t, world, func(r *collective.Rank) error {
		shards, copies, err := hybridGroups(r)
		if err != nil {
			return err
		}
		for _, deferred := range []bool{false, true} {
			a, b, c := nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{})
			f, err := fsdp.New(nn.NewSequential(a, b, c), shards, nil, fsdp.Options{Replicas: copies})
			if err != nil {
				return err
			}
			x, y := batch(0, 0, 2)
			pass := func(withB bool) error {
				out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
					z := nn.Call(a, in[0])
					if withB {
						z = op.Add(z, nn.Call(b, in[0]))
					}
					return []*core.Tensor{mse(z, in[1])}
				}, x, y)
				if err != nil {
					return err
				}
				return autograd.Backward(out[0])
			}
			u := f.Tree().Units()[0]
			if deferred {
				u.SetAllReduce(false)
				before := copies.Stats().Calls["all_reduce"]
				if err := pass(r.Rank == 3); err != nil {
					return err
				}
				if n := copies.Stats().Calls["all_reduce"]; n != before {
					return fmt.Errorf("%d all-reduces in a pass without them", n-before)
				}
				u.SetAllReduce(true)
			}
			if err := pass(r.Rank == 3 && !deferred); err != nil {
				return err
			}
			for i, l := range []*nn.Linear{a, b, c} {
				if has := l.Weight.Grad() != nil; has != (i < 2) {
					return fmt.Errorf("deferred %v: layer %d has a gradient: %v", deferred, i, has)
				}
			}
			sum, err := op.Sum(op.Abs(b.Bias.Grad().Parts().Local()), nil, false).Item()
			if err != nil || sum == 0 {
				return fmt.Errorf("deferred %v: the gradient of what one rank uses is %v, %w", deferred, sum, err)
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}
