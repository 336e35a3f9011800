package fsdp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/stretchr/testify/require"
)

// TestCase34Offload checks that shards on another device train alike, and take no memory of the device that computes.
func TestCase34Offload(t *testing.T) {
	const world = 2
	var want []float64
	in64(t, func() {
		var err error
		want, err = trainOneDevice(model(), "adam", 3, 2*world)
		require.NoError(t, err)
	})
	device, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	coretest.Settle(t, device) // otherwise memory of earlier tests could be freed while this test counts
	spawn(t, world, func(r *collective.Rank) error {
		host, err := core.OpenDevice("cpu:2")
		if err != nil {
			return err
		}
		used := func(c core.Category) int { return core.RankCategoryUsage(r.Device, r.Rank, c).Current }
		params, states := used(core.Parameter), used(core.OptimizerState)
		m := model()
		f, err := fsdp.New(m, r.World, blocks, fsdp.Options{Offload: host})
		if err != nil {
			return err
		}
		if n := used(core.Parameter) - params; n != 0 {
			return fmt.Errorf("%d bytes of parameters are left on %v", n, r.Device)
		}
		opt, err := optimisers["adam"](nn.Parameters(m))
		if err != nil {
			return err
		}
		for s := range 3 {
			x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
			if _, err := step(f.Forward, opt, x, y); err != nil {
				return err
			}
		}
		if n := used(core.OptimizerState) - states; n != 0 {
			return fmt.Errorf("%d bytes of the optimiser's state are on %v", n, r.Device)
		}
		got, err := fullParams(f)
		opt.Release()
		return errors.Join(err, near("parameters", got, want, 1e-9), f.Close())
	})
}

// TestCase36And37StateAndBytes checks that a rank has 1/n of the optimiser's state (case 36), and the bytes that are communicated
// (case 37).
func TestCase36And37StateAndBytes(t *testing.T) {
	const world = 4
	for _, keep := range []bool{false, true} {
		err := collective.Spawn(world, []string{"cpu:0"}, collective.Options{}, func(r *collective.Rank) error {
			m := deep(0)
			f, err := fsdp.New(m, r.World, blocks, fsdp.Options{KeepAfterForward: keep})
			if err != nil {
				return err
			}
			opt, err := optimisers["adam"](nn.Parameters(m))
			if err != nil {
				return err
			}
			total := 4 * layers * (side*side + side)
			for s := range 3 {
				before := r.World.Stats().Bytes
				core.Tidy(func() {
					opt.ZeroGrad()
					if err = autograd.Backward(op.Mean(f.Forward(op.Ones(1, side)), nil, false)); err == nil {
						err = opt.Step()
					}
				})
				if err != nil {
					return err
				}
				after := r.World.Stats().Bytes
				gathers := 2
				if keep {
					gathers = 1
				}
				share := total * (world - 1) / world
				if got := after["all_gather"] - before["all_gather"]; got != gathers*share {
					return fmt.Errorf("step %d gathered %d bytes, want %d", s, got, gathers*share)
				}
				if got := after["reduce_scatter"] - before["reduce_scatter"]; got != share {
					return fmt.Errorf("step %d reduced %d bytes, want %d", s, got, share)
				}
			}
			if got := opt.StateBytes(); got != 2*total/world {
				return fmt.Errorf("the optimiser's state has %d bytes, want %d", got, 2*total/world)
			}
			return f.Close()
		})
		require.NoError(t, err)
	}
}

// TestPlacements checks the placements and parts of shards: divisible by the number of ranks, not divisible, fewer than it, and a scalar, of
// which every rank has a copy.
func TestPlacements(t *testing.T) {
	spawn(t, 4, func(r *collective.Rank) error {
		whole, err := mesh.New(r.World, []int{2, 2}, mesh.Options{Names: []string{"copies", "shards"}})
		if err != nil {
			return err
		}
		m := nn.NewSequential(nn.NewLinear(2, 5, nn.LinearOptions{NoBias: true}), nn.NewLinear(5, 4, nn.LinearOptions{NoBias: true}),
			nn.NewLinear(4, 1, nn.LinearOptions{NoBias: true}), newScaleLayer())
		f, err := fsdp.New(m, whole.Group(1), nil, fsdp.Options{Replicas: whole.Group(0), Mesh: whole})
		if err != nil {
			return err
		}
		want := []struct {
			placed  string
			shape   []int
			offsets []int // of each rank of a group
			lengths []int
		}{
			{"[Replicate(), Shard(0)]", []int{5, 2}, []int{0, 3}, []int{3, 2}}, {"[Replicate(), Shard(0)]", []int{4, 5}, []int{0, 2}, []int{2, 2}},
			{"[Replicate(), Shard(0)]", []int{1, 4}, []int{0, 1}, []int{1, 0}}, {"[Replicate(), Replicate()]", []int{}, nil, nil},
		}
		for i, p := range nn.Parameters(m) {
			w, local := want[i], p.Parts().Local().Shape()
			if got := p.Parts().String(); got != w.placed || !slices.Equal(p.Shape(), w.shape) {
				return fmt.Errorf("parameter %d is placed %v and has shape %v, want %v, %v", i, got, p.Shape(), w.placed, w.shape)
			}
			if at := r.Rank % 2; len(w.shape) > 0 && (local[0] != w.lengths[at] || tensor.Offset(p)[0] != w.offsets[at]) {
				return fmt.Errorf("rank %d: parameter %d has a part of shape %v at %v, want %d rows at %d", r.Rank, i, local, tensor.Offset(p), w.lengths[at], w.offsets[at])
			}
		}
		return f.Close()
	})
}
