package pipeline

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/worldtest"
	"github.com/plait-ml/plait/parallel/tensor"
)

// averaged returns the gradients of a model that gets the parts of a batch in order: of each micro-batch the average over the
// parts, and of these the sum.
func averaged(t *testing.T, m nn.Layer, parts [][2]*core.Tensor, micro int) map[string][]float64 {
	t.Helper()
	sizes := Sizes(parts[0][0].Size(0), micro)
	at := 0
	for i, n := range sizes {
		total := map[*core.Tensor]*core.Tensor{}
		for _, p := range nn.Parameters(m) {
			if g := p.Grad(); g != nil {
				total[p] = g.Detach().Keep()
				p.SetGrad(nil)
			}
		}
		for _, part := range parts {
			l := mse(false)(nn.Call(m, op.Narrow(part[0], 0, at, n)), op.Narrow(part[1], 0, at, n))
			weight := op.Mul(op.OnesLike(l, op.TensorOptions{}), core.Num(Weights(sizes, false)[i]))
			require.NoError(t, autograd.BackwardWith([]*core.Tensor{l}, []*core.Tensor{weight}, autograd.Options{}))
		}
		core.NoGrad(func() {
			for _, p := range nn.Parameters(m) {
				g := op.Div(p.Grad(), core.Num(float64(len(parts))))
				if total[p] != nil {
					g = op.Add(total[p], g)
				}
				p.SetGrad(g.Keep())
			}
		})
		at += n
	}
	return grads(t, m)
}

// TestShardedStages combines pipelines with FSDP: two pipelines of two ranks each, and ranks with the same stages shard their parameters.
// Under every schedule the gradients must be bitwise equal to those of one device that sums in the same order. The number of
// all-gathers and the memory are bounded.
func TestShardedStages(t *testing.T) {
	const copies, micro = 2, 4
	in64(t, func() {
		var parts [][2]*core.Tensor
		for range copies {
			parts = append(parts, [2]*core.Tensor{op.Rand(7, 4).Keep(), op.Rand(7, 4).Keep()})
		}
		for _, name := range Names() {
			chunks, err := Chunks(name, 0)
			require.NoError(t, err)
			place, err := Place(name, 2, chunks)
			require.NoError(t, err)
			schedule, err := New(name, 2, micro, chunks)
			require.NoError(t, err)
			model := mlp(len(place), 4, 0)
			want := averaged(t, model, parts, micro)
			got := map[string][]float64{}
			var mu sync.Mutex
			require.NoError(t, worldtest.Spawn(2*copies, nil, collective.Options{}, func(r *collective.Rank) error {
				if err := core.CurrentContext().SetDefaultDType(core.Float64); err != nil {
					return err
				}
				stage, part := r.Rank/copies, r.Rank%copies
				var along, across *collective.Group // of a pipeline, and of the ranks with the same stages
				for i := range 2 {
					for _, x := range []struct {
						group **collective.Group
						ranks []int
					}{{&along, []int{i, copies + i}}, {&across, []int{i * copies, i*copies + 1}}} {
						g, err := r.World.New(x.ranks, collective.Options{})
						if err != nil {
							return err
						}
						if g != nil {
							*x.group = g
						}
					}
				}
				mine := nn.Replicate(model, func(n nn.Named) *core.Tensor {
					return op.Clone(op.ToDevice(n.Tensor.Detach(), r.Device)).Keep().SetRequiresGrad(true)
				}).(*nn.Sequential)
				layers := make([]nn.Layer, len(place))
				var sharded []*fsdp.FullyShardedDataParallel
				for s, l := range mine.Layers {
					if place[s] != stage {
						continue
					}
					f, err := fsdp.New(l, across, fsdp.ByType(&nn.Linear{}), fsdp.Options{})
					if err != nil {
						return err
					}
					sharded = append(sharded, f)
					layers[s] = &layerFunc{fn: f.Forward}
				}
				e, err := NewRankExecutor(along, r.Device, place)
				if err != nil {
					return err
				}
				x, target := op.ToDevice(parts[part][0], r.Device), op.ToDevice(parts[part][1], r.Device)
				if _, err := rankStep(r, e, schedule, &nn.Sequential{Layers: layers}, x, target); err != nil {
					return err
				}
				for i, f := range sharded {
					s := schedule.stagesOf(stage)[i]
					for _, u := range f.Tree().Units()[1:] {
						// Once for each forward and backward pass at most, and never for the gradients of a Linear's weights alone.
						if n := u.Stats(); n.Gathers > 2*micro || n.Reductions != micro {
							return fmt.Errorf("stage %d, %s: %+v", s, u.Name(), n)
						}
					}
					for _, n := range nn.NamedParameters(mine.Layers[s]) {
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
				}
				return e.Release()
			}), name)
			assert.Equal(t, want, got, name)
		}
	})
}

// stagesOf returns the stages of a device, in order.
func (s *Schedule) stagesOf(device int) (list []int) {
	for i, d := range s.Devices() {
		if d == device {
			list = append(list, i)
		}
	}
	return list
}

// gradient returns the full gradient of a divided parameter.
func gradient(f *fsdp.FullyShardedDataParallel, n nn.Named) ([]float64, error) {
	if err := f.Settle(); err != nil {
		return nil, err
	}
	return core.Values[float64](tensor.Full(n.Tensor.Grad()))
}
