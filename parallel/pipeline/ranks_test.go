package pipeline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/internal/worldtest"
)

// TestRanksDrawTheSameNumbers has random numbers that go with a micro-batch from rank to rank as they go from stage to stage.
func TestRanksDrawTheSameNumbers(t *testing.T) {
	in64(t, func() {
		x, target := op.Rand(7, 4), op.Rand(7, 4)
		for _, name := range Names() {
			chunks, err := Chunks(name, 0)
			require.NoError(t, err)
			place, err := Place(name, 2, chunks)
			require.NoError(t, err)
			schedule, err := New(name, 2, 3, chunks)
			require.NoError(t, err)
			model := mlp(2*chunks, 4, 0.5)
			p, err := NewPipeline(model, names(2), Options{Chunks: 3, Schedule: name, Loss: mse(false)})
			require.NoError(t, err)
			core.ManualSeed(11)
			_, _, err = p.Step(x, target)
			require.NoError(t, err)
			want := grads(t, p)
			require.NoError(t, p.Release())
			require.NoError(t, worldtest.Spawn(2, nil, collective.Options{}, func(r *collective.Rank) error {
				core.ManualSeed(11)
				mine := nn.Replicate(model, func(n nn.Named) *core.Tensor {
					return op.ToDevice(n.Tensor.Detach(), r.Device).Detach().SetRequiresGrad(true)
				}).(*nn.Sequential)
				e, err := NewRankExecutor(r.World, r.Device, place)
				if err != nil {
					return err
				}
				if _, err := rankStep(r, e, schedule, mine, x, target); err != nil {
					return err
				}
				for _, n := range nn.NamedParameters(mine) {
					if g := n.Tensor.Grad(); g != nil {
						if v, err := core.Values[float64](g); err != nil || !slices.Equal(v, want[n.Name]) {
							return fmt.Errorf("%s, %s: got %v, %v, want %v", name, n.Name, v, err, want[n.Name])
						}
					}
				}
				return e.Release()
			}))
		}
	})
}

// TestRanks runs a stage on each of several ranks, and two with the V-shaped schedule.
func TestRanks(t *testing.T) {
	in64(t, func() {
		x, target := op.Rand(7, 4), op.Rand(7, 4)
		for _, name := range Names() {
			chunks, err := Chunks(name, 0)
			require.NoError(t, err)
			place, err := Place(name, 3, chunks)
			require.NoError(t, err)
			model := mlp(3*chunks, 4, 0)
			wantLoss, _ := whole(t, model, x, target, mse(false))
			want := grads(t, model)
			schedule, err := New(name, 3, 4, chunks)
			require.NoError(t, err)
			got := make([]map[string][]float64, 3)
			losses := make([][]float64, 3)
			require.NoError(t, worldtest.Spawn(3, nil, collective.Options{}, func(r *collective.Rank) error {
				mine := nn.Replicate(model, func(n nn.Named) *core.Tensor {
					return op.ToDevice(n.Tensor.Detach(), r.Device).Detach().SetRequiresGrad(true)
				}).(*nn.Sequential)
				e, err := NewRankExecutor(r.World, r.Device, place)
				if err != nil {
					return err
				}
				if losses[r.Rank], err = rankStep(r, e, schedule, mine, x, target); err != nil {
					return err
				}
				got[r.Rank] = map[string][]float64{}
				for _, n := range nn.NamedParameters(mine) {
					if g := n.Tensor.Grad(); g != nil {
						if got[r.Rank][n.Name], err = core.Values[float64](g); err != nil {
							return err
						}
					}
				}
				return e.Release()
			}), name)
			all := map[string][]float64{}
			for _, list := range got {
				for k, v := range list {
					assert.NotContains(t, all, k)
					all[k] = v
				}
			}
			near(t, want, all, name)
			assert.InDeltaSlice(t, vals(t, wantLoss), losses[place[len(place)-1]], 1e-12)
		}
	})
}
