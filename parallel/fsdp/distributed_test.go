package fsdp_test

import (
	"errors"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
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
		rows := []core.Placement{core.Shard(0)}
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
