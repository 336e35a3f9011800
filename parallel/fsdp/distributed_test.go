package fsdp_test

import (
	"errors"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planeModel returns a model, and its layers, of sizes that two ranks do not divide evenly.
func planeModel() (*nn.Sequential, []*nn.Linear) {
	core.ManualSeed(3)
	a, b, c := nn.NewLinear(width, 7, nn.LinearOptions{}), nn.NewLinear(7, 5, nn.LinearOptions{}), nn.NewLinear(5, 2, nn.LinearOptions{})
	return nn.NewSequential(nn.NewSequential(a, nn.NewTanh(), b), nn.NewTanh(), c), []*nn.Linear{a, b, c}
}

// TestCase50DistributedParameters checks that steps of a model whose parameters are distributed along one dimension of a mesh and sharded along
// the other match one device, and that the norm of its gradients does.
func TestCase50DistributedParameters(t *testing.T) {
	var want, norms []float64
	clip := func(params []*core.Tensor, norm func() *core.Tensor) error {
		n := norm()
		v, err := n.Item()
		norms = append(norms, v)
		return errors.Join(err, optim.ClipGradsWithNorm(params, 0.1, n))
	}
	in64(t, func() {
		m, _ := planeModel()
		params := nn.Parameters(m)
		o, err := optimisers["adam"](params)
		require.NoError(t, err)
		for s := range 3 {
			x, y := batch(s, 0, 6)
			o.ZeroGrad()
			require.NoError(t, autograd.Backward(mse(m.Forward(x), y)))
			require.NoError(t, clip(params, func() *core.Tensor { return optim.GradNorm(params, optim.ClipOptions{}) }))
			require.NoError(t, o.Step())
		}
		want, err = values(params)
		require.NoError(t, err)
	})
	// The last two are those of a layer that makes queries, keys and values: each rank has a part of each.
	for _, rows := range [][]core.Placement{{core.Shard(0)}, {core.InterleavedShard(0, 3)}, {core.InterleavedShard(0, 2)}} {
		spawn(t, 4, func(r *collective.Rank) error {
			whole, err := mesh.New(r.World, []int{2, 2}, mesh.Options{Names: []string{"dp", "tp"}})
			if err != nil {
				return err
			}
			dp, err := whole.Sub("dp")
			if err != nil {
				return err
			}
			tp, err := whole.Sub("tp")
			if err != nil {
				return err
			}
			m, layers := planeModel()
			for _, l := range layers {
				l.Weight, l.Bias = tensor.Distribute(l.Weight, tp, rows).Keep(), tensor.Distribute(l.Bias, tp, rows).Keep()
			}
			f, err := fsdp.New(m, dp.Group(0), blocks, fsdp.Options{Mesh: dp})
			if err != nil {
				return err
			}
			params := nn.Parameters(m)
			o, err := optimisers["adam"](params)
			if err != nil {
				return err
			}
			at := dp.Coordinate()[0]
			for s := range 3 {
				x, y := batch(s, 3*at, 3*at+3)
				o.ZeroGrad()
				loss := mse(f.Forward(tensor.Distribute(x, tp, nil)), tensor.Distribute(y, tp, nil))
				if err := autograd.Backward(loss); err != nil {
					return err
				}
				total := fsdp.GradNorm(f.Tree().Units(), params, optim.ClipOptions{})
				v, err := total.Item()
				if err := errors.Join(err, near("the norm", []float64{v}, norms[s:s+1], 1e-9)); err != nil {
					return err
				}
				if err := errors.Join(optim.ClipGradsWithNorm(params, 0.1, total), o.Step()); err != nil {
					return err
				}
			}
			var got []float64
			for _, p := range params {
				v, err := values([]*core.Tensor{tensor.Full(p.Detach())})
				if err != nil {
					return err
				}
				got = append(got, v...)
			}
			o.Release()
			return errors.Join(near("parameters", got, want, 1e-9), f.Close())
		})
	}
}

// TestPlacementsOfDistributedParameters checks how shards lie along the mesh of both dimensions: data-parallel ones first, as in PyTorch.
func TestPlacementsOfDistributedParameters(t *testing.T) {
	spawn(t, 6, func(r *collective.Rank) error {
		m, err := mesh.New(r.World, []int{1, 3, 2}, mesh.Options{Names: []string{"copies", "dp", "tp"}})
		if err != nil {
			return err
		}
		over, err := m.Sub("copies", "dp")
		if err != nil {
			return err
		}
		tp, err := m.Sub("tp")
		if err != nil {
			return err
		}
		rows, columns := core.Shard(0), core.Shard(1)
		for _, c := range []struct {
			before core.Placement
			along  int
			want   []core.Placement
		}{
			{rows, 0, []core.Placement{core.Replicate(), core.InterleavedShard(0, 2), rows}},
			{rows, 1, []core.Placement{core.Replicate(), columns, rows}},
			{columns, 0, []core.Placement{core.Replicate(), rows, columns}},
			{columns, 1, []core.Placement{core.Replicate(), core.InterleavedShard(1, 2), columns}},
			{core.Replicate(), 0, []core.Placement{core.Replicate(), rows, core.Replicate()}},
			{core.InterleavedShard(0, 3), 1, []core.Placement{core.Replicate(), columns, core.InterleavedShard(0, 3)}},
			{core.InterleavedShard(0, 3), 0, []core.Placement{core.Replicate(), core.InterleavedShard(0, 2), core.InterleavedShard(0, 3)}},
			{core.InterleavedShard(0, 2), 0, []core.Placement{core.Replicate(), core.InterleavedShard(0, 2), core.InterleavedShard(0, 2)}},
			{core.InterleavedShard(1, 9), 1, []core.Placement{core.Replicate(), core.InterleavedShard(1, 2), core.InterleavedShard(1, 9)}},
		} {
			core.ManualSeed(1)
			whole := op.Randn(5, 7)
			p := tensor.Distribute(whole, tp, []core.Placement{c.before}).SetRequiresGrad(true).Keep()
			o := fsdp.Options{Mesh: over, Replicas: over.Group(0), ShardDim: func(fsdp.Named) int { return c.along }}
			u, err := fsdp.NewUnit(over.Group(1), []fsdp.Named{{Name: "p", Tensor: p}}, o)
			if err != nil {
				return err
			}
			assert.Equal(t, c.want, tensor.Placements(p))
			assert.Equal(t, m.Names(), tensor.Mesh(p).Names())
			assert.True(t, tensor.Mesh(p).Group(1) == over.Group(1))
			got, err := values([]*core.Tensor{tensor.Full(p.Detach())})
			if err != nil {
				return err
			}
			want, err := values([]*core.Tensor{whole})
			if err := errors.Join(err, u.Close()); err != nil {
				return err
			}
			assert.Equal(t, want, got, "%v along %d", c.before, c.along)
		}
		return nil
	})
}
