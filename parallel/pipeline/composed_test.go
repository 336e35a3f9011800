package pipeline

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/worldtest"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// blocksOf returns n stages that widen and narrow again. The first and the last share a norm's weight.
func blocksOf(n int) *nn.Sequential {
	core.ManualSeed(5)
	var layers []nn.Layer
	var first *nn.LayerNorm
	for range n {
		norm := nn.NewLayerNorm([]int{4}, nn.NormOptions{})
		up, down := nn.NewLinear(4, 6, nn.LinearOptions{}), nn.NewLinear(6, 4, nn.LinearOptions{})
		if first == nil {
			first = norm
		}
		layers = append(layers, nn.NewSequential(norm, up, nn.NewTanh(), down))
	}
	m := nn.NewSequential(layers...)
	last := layers[n-1].(*nn.Sequential).Layers[0].(*nn.LayerNorm)
	last.Weight = first.Weight
	for _, p := range nn.Parameters(m) {
		p.Keep()
	}
	return m
}

// TestThreeDimensions combines a pipeline, FSDP and divided layers: eight ranks, two along each dimension of a mesh. Gradients must be those
// of one device, also of a parameter that stages on different ranks share.
func TestThreeDimensions(t *testing.T) {
	const micro = 4
	in64(t, func() {
		x, target := op.Rand(8, 4).Keep(), op.Rand(8, 4).Keep()
		for _, name := range []string{"1f1b", "zb-h1"} {
			place, err := Place(name, 2, 1)
			require.NoError(t, err)
			schedule, err := New(name, 2, micro, 1)
			require.NoError(t, err)
			model := blocksOf(len(place))
			whole(t, model, x, target, mse(false))
			want := grads(t, model)
			got := map[string][]float64{}
			var mu sync.Mutex
			require.NoError(t, worldtest.Spawn(8, nil, collective.Options{}, func(r *collective.Rank) error {
				if err := core.CurrentContext().SetDefaultDType(core.Float64); err != nil {
					return err
				}
				world, err := mesh.New(r.World, []int{2, 2, 2}, mesh.Options{Names: []string{"pp", "fsdp", "tp"}})
				if err != nil {
					return err
				}
				var along [3]*mesh.Mesh
				for i, axis := range []string{"pp", "fsdp", "tp"} {
					if along[i], err = world.Sub(axis); err != nil {
						return err
					}
				}
				pp, data, tp := along[0], along[1], along[2]
				mine := nn.Replicate(model, func(n nn.Named) *core.Tensor {
					return op.Clone(op.ToDevice(n.Tensor.Detach(), r.Device)).Keep().SetRequiresGrad(true)
				}).(*nn.Sequential)
				s := pp.Coordinate()[0]
				block := mine.Layers[s].(*nn.Sequential)
				up, down := block.Layers[1].(*nn.Linear), block.Layers[3].(*nn.Linear)
				up.Weight, up.Bias = divide(up.Weight, tp, 0), divide(up.Bias, tp, 0)
				down.Weight = divide(down.Weight, tp, 1)
				f, err := fsdp.New(block, data.Group(0), nil, fsdp.Options{Mesh: data})
				if err != nil {
					return err
				}
				e, err := NewRankExecutor(pp.Group(0), r.Device, place)
				if err != nil {
					return err
				}
				if err := e.Share(block.Layers[0].(*nn.LayerNorm).Weight, []int{0, 1}); err != nil {
					return err
				}
				layers := make([]nn.Layer, len(place))
				layers[s] = &layerFunc{fn: func(x *core.Tensor) (y *core.Tensor) {
					core.WithMode(func(m core.Mode) core.Mode { return m.WithReplicates(true) }, func() { y = tensor.Full(f.Forward(x)) })
					return y
				}}
				part := func(t *core.Tensor) *core.Tensor {
					return op.ToDevice(op.Narrow(t, 0, 4*data.Coordinate()[0], 4), r.Device)
				}
				if _, err := rankStep(r, e, schedule, &nn.Sequential{Layers: layers}, part(x), part(target)); err != nil {
					return err
				}
				for _, n := range nn.NamedParameters(block) {
					g, err := gradient(f, n)
					if err != nil {
						return err
					}
					mu.Lock()
					got[fmt.Sprintf("%d.%s", s, n.Name)] = g
					mu.Unlock()
				}
				if err := f.Close(); err != nil {
					return err
				}
				return e.Release()
			}), name)
			want["1.0.weight"] = want["0.0.weight"] // the copy of the second stage
			near(t, want, got, name)
		}
	})
}

// divide returns a parameter that is divided along dimension d over the ranks of a mesh.
func divide(p *core.Tensor, m *mesh.Mesh, d int) *core.Tensor {
	return tensor.Distribute(p.Detach(), m, []core.Placement{core.Shard(d)}).Keep().SetRequiresGrad(true)
}
