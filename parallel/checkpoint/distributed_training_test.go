package checkpoint_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/checkpoint"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// Training of distributed parameters goes on in any other layout, and on one device, as one device would.
func TestTrainingOfDistributedParameters(t *testing.T) {
	const wide, narrow = 5, 3 // which no number of ranks divides
	for _, algorithm := range []string{"adafactor", "adamw", "lbfgs", "muon"}[:coretest.Rounds(4)] {
		dir := t.TempDir()
		// run trains on n ranks, 0 for one device without ranks, from one step to another.
		run := func(n int, place core.Placement, seed uint64, from, to int, after func(p []*core.Tensor, tr *checkpoint.Training, g *collective.Group) error) {
			one := func(g *collective.Group) error {
				core.ManualSeed(seed)
				up := nn.NewLinear(narrow, wide, nn.LinearOptions{NoBias: true})
				down := nn.NewLinear(wide, narrow, nn.LinearOptions{NoBias: true})
				net := nn.NewSequential(up, nn.NewTanh(), down)
				if err := nn.ToDType(net, core.Float64); err != nil {
					return err
				}
				lay := func(x *core.Tensor) *core.Tensor { return x }
				if g != nil {
					m, err := mesh.New(g, []int{n}, mesh.Options{})
					if err != nil {
						return err
					}
					lay = func(x *core.Tensor) *core.Tensor { return tensor.FromLocal(x, m, nil, nil) }
					up.Weight = tensor.Distribute(up.Weight, m, []core.Placement{place}).Keep()
					down.Weight = tensor.Distribute(down.Weight, m, []core.Placement{place}).Keep()
				}
				o, err := optim.New(algorithm, optim.Hyper{"lr": 0.05}, optim.Params{Tensors: nn.Parameters(net)})
				if err != nil {
					return err
				}
				tr := &checkpoint.Training{Model: net, Optimizer: o}
				if from > 0 {
					if err := tr.Load(dir, g); err != nil {
						return err
					}
				}
				for step := from; step < to; step++ {
					x := op.Arange(nil, core.Num(4*narrow), nil, op.TensorOptions{})
					x = op.To(op.Sin(op.AddScaled(op.Reshape(x, 4, narrow), op.Ones(4, narrow), float64(step))), core.Float64)
					if _, err := o.StepWith(func() (*core.Tensor, error) {
						o.ZeroGrad()
						l := square(net.Forward(lay(x)), nil)
						return l, autograd.Backward(l)
					}); err != nil {
						return err
					}
				}
				return after(nn.Parameters(net), tr, g)
			}
			if n == 0 {
				require.NoError(t, one(nil), algorithm)
				return
			}
			require.NoError(t, collective.Spawn(n, []string{"cpu:0"}, collective.Options{}, func(r *collective.Rank) error { return one(r.World) }),
				"%s on %d ranks as %v", algorithm, n, place)
		}
		var want [][]float64
		whole := func(p *core.Tensor) ([]float64, error) {
			if p.Parts() != nil {
				p = tensor.Full(p)
			}
			return core.Values[float64](p.Detach())
		}
		run(0, core.Replicate(), 1, 0, 4, func(p []*core.Tensor, _ *checkpoint.Training, _ *collective.Group) error {
			for _, x := range p {
				v, err := whole(x)
				if err != nil {
					return err
				}
				want = append(want, v)
			}
			return nil
		})
		run(2, core.Shard(0), 1, 0, 2, func(_ []*core.Tensor, tr *checkpoint.Training, g *collective.Group) error { return tr.Save(dir, g) })
		compare := func(p []*core.Tensor, _ *checkpoint.Training, _ *collective.Group) error {
			for i, x := range p {
				v, err := whole(x)
				if err != nil {
					return err
				}
				for k := range v {
					if d := v[k] - want[i][k]; !(d < 1e-9 && d > -1e-9) {
						return fmt.Errorf("parameter %d, element %d: got %v, want %v", i, k, v[k], want[i][k])
					}
				}
			}
			return nil
		}
		run(0, core.Replicate(), 2, 2, 4, compare)
		run(3, core.Shard(1), 2, 2, 4, compare)
		run(2, core.Replicate(), 2, 2, 4, compare)
		run(4, core.Shard(0), 2, 2, 4, compare)
	}
}
