package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// rankStep makes a training step of a rank, whose layers are the stages, and returns the loss where there is one.
func rankStep(r *collective.Rank, e *Executor, schedule *Schedule, layers *nn.Sequential, x, target *core.Tensor) ([]float64, error) {
	sizes := Sizes(x.Size(0), schedule.Micro())
	b := Batch{Schedule: schedule, Train: true, Loss: true, Weights: Weights(sizes, false)}
	at := []int{0}
	for i, n := range sizes {
		b.Inputs = append(b.Inputs, []*core.Tensor{op.Narrow(x, 0, at[i], n)})
		at = append(at, at[i]+n)
	}
	s, err := e.Begin(b)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	for {
		c, err := s.Next()
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		core.WithMode(func(core.Mode) core.Mode { return c.Mode }, func() {
			if c.What == CallEnd {
				err = s.Answer(nil)
				return
			}
			y := c.Inputs[0]
			if c.What == CallLoss {
				y = mse(false)(y, op.ToDevice(op.Narrow(target, 0, at[c.Micro], sizes[c.Micro]), r.Device))
			} else {
				y = nn.Call(layers.Layers[c.Stage], y)
			}
			err = s.Answer([]*core.Tensor{y})
		})
		if err != nil {
			return nil, err
		}
	}
	if l := s.Loss(); l != nil {
		return core.Values[float64](l)
	}
	return nil, nil
}

// TestCase42SharedByRanks checks weights that stages of several ranks share. Copies start with the owner's values. Every copy gets the
// bitwise equal sum of the gradients of all uses, also with gradient accumulation over steps.
func TestCase42SharedByRanks(t *testing.T) {
	const ranks, micro = 3, 4
	in64(t, func() {
		x, target := op.Rand(7, 4), op.Rand(7, 4)
		for _, name := range Names() {
			chunks, err := Chunks(name, 0)
			require.NoError(t, err)
			place, err := Place(name, ranks, chunks)
			require.NoError(t, err)
			last := len(place) - 1
			// One weight is in the first and the last stage, another also in the second.
			tied := [][]int{{0, last}, {0, 1, last}}
			w := []*core.Tensor{op.Rand(4, 4).Keep().SetRequiresGrad(true), op.Rand(4, 4).Keep().SetRequiresGrad(true)}
			model := mlp(last+1, 4, 0)
			for k, stages := range tied {
				for _, i := range stages {
					model.Layers[i] = nn.NewSequential(model.Layers[i], &projection{Weight: w[k]})
				}
			}
			for range 2 {
				whole(t, model, x, target, mse(false))
			}
			want := make([][]float64, len(w))
			for k := range w {
				want[k] = vals(t, w[k].Grad())
			}
			rest := grads(t, model)
			schedule, err := New(name, ranks, micro, chunks)
			require.NoError(t, err)
			var got [ranks][][]float64
			var all [ranks]map[string][]float64
			require.NoError(t, collective.Spawn(ranks, nil, collective.Options{}, func(r *collective.Rank) error {
				moved := map[*core.Tensor]*core.Tensor{}
				mine := nn.Replicate(model, func(n nn.Named) *core.Tensor {
					if moved[n.Tensor] == nil {
						v := op.ToDevice(n.Tensor.Detach(), r.Device)
						if slices.Contains(w, n.Tensor) && r.Rank > 0 { // the first rank has the values that count
							v = op.Mul(v, core.Num(0.5))
						}
						moved[n.Tensor] = v.Detach().SetRequiresGrad(true)
					}
					return moved[n.Tensor]
				}).(*nn.Sequential)
				own := []*core.Tensor{moved[w[0]], moved[w[1]]}
				e, err := NewRankExecutor(r.World, r.Device, place)
				if err != nil {
					return err
				}
				for k, stages := range tied {
					for _, s := range stages {
						if place[s] == r.Rank {
							if err := e.Share(own[k], stages); err != nil {
								return err
							}
						}
					}
				}
				for range 2 {
					if _, err := rankStep(r, e, schedule, mine, x, target); err != nil {
						return err
					}
				}
				for k := range own {
					var v []float64
					if g := own[k].Grad(); g != nil {
						if v, err = core.Values[float64](g); err != nil {
							return err
						}
						own[k].SetGrad(nil)
					}
					got[r.Rank] = append(got[r.Rank], v)
				}
				all[r.Rank] = map[string][]float64{}
				for _, n := range nn.NamedParameters(mine) {
					if g := n.Tensor.Grad(); g != nil {
						if all[r.Rank][n.Name], err = core.Values[float64](g); err != nil {
							return err
						}
					}
				}
				return e.Release()
			}), name)
			for k, stages := range tied {
				for _, s := range stages {
					r := place[s]
					assert.InDeltaSlice(t, want[k], got[r][k], 1e-12, "%s, weight %d on rank %d", name, k, r)
					assert.Equal(t, got[place[0]][k], got[r][k], "%s, weight %d on rank %d", name, k, r)
				}
			}
			for _, list := range all {
				for n, v := range list {
					assert.InDeltaSlice(t, rest[n], v, 1e-12, fmt.Sprint(name, n))
				}
			}
		}
	})
}

// TestAStepThatIsGivenUp checks that a failed step keeps the accumulated gradient of a shared weight.
func TestAStepThatIsGivenUp(t *testing.T) {
	schedule, err := New("gpipe", 2, 2, 0)
	require.NoError(t, err)
	require.NoError(t, collective.Spawn(2, nil, collective.Options{}, func(r *collective.Rank) error {
		w := op.Ones(3).SetRequiresGrad(true)
		w.SetGrad(op.Ones(3))
		e, err := NewRankExecutor(r.World, r.Device, []int{0, 1})
		if err != nil {
			return err
		}
		if err := e.Share(w, []int{0, 1}); err != nil {
			return err
		}
		b := Batch{Schedule: schedule, Train: true, Loss: true, Weights: []float64{1, 1}, Inputs: [][]*core.Tensor{{op.Ones(1)}, {op.Ones(1)}}}
		s, err := e.Begin(b)
		if err != nil {
			return err
		}
		if w.Grad() != nil {
			return errors.New("the gradient of earlier steps is not aside")
		}
		if err := r.World.Barrier(); err != nil { // the other one has begun
			return err
		}
		s.Release()
		if v, err := core.Values[float64](w.Grad()); err != nil || !slices.Equal(v, []float64{1, 1, 1}) {
			return fmt.Errorf("got %v, %v", v, err)
		}
		return e.Release()
	}))
}
