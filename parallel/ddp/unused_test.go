package ddp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// branches uses only the branch named by use.
type branches struct {
	nn.Base
	Common, Left, Right *nn.Linear
	use                 string
}

func (b *branches) Forward(x *core.Tensor) *core.Tensor {
	y := op.Tanh(b.Common.Forward(x))
	switch b.use {
	case "left":
		return b.Left.Forward(y)
	case "right":
		return b.Right.Forward(y)
	case "none":
		return op.Narrow(y, 1, 0, 2)
	}
	return op.Add(b.Left.Forward(y), b.Right.Forward(y))
}

func newBranches() *branches {
	return &branches{Common: nn.NewLinear(width, 4, nn.LinearOptions{}), Left: nn.NewLinear(4, 2, nn.LinearOptions{}), Right: nn.NewLinear(4, 2, nn.LinearOptions{})}
}

// If backward leaves a parameter without a gradient, the next forward pass returns an error that names it.
func TestCase20UnusedParametersAreNamed(t *testing.T) {
	err := trySpawn(2, func(r *collective.Rank) error {
		m := newBranches()
		p, err := ddp.New(m, r.World, small)
		if err != nil {
			return err
		}
		m.use = "left"
		if err := backward(p, r, 0); err != nil {
			return fmt.Errorf("the first step: %w", err)
		}
		return backward(p, r, 1)
	})
	for r := range 2 {
		require.ErrorContains(t, err, fmt.Sprintf("on rank %d backward gave no gradient to right.weight, right.bias", r))
	}
	require.NotContains(t, err.Error(), "the first step")
}

// With FindUnused, ranks may use different branches in each step. A parameter that no rank used keeps its gradient.
func TestCase20FindUnused(t *testing.T) {
	uses := [][]string{{"left", "right"}, {"both", "left"}, {"none", "none"}, {"right", "right"}, {"left", "none"}}
	for _, view := range []bool{false, true} {
		var want [][]float64
		in64(t, func() {
			core.ManualSeed(9)
			m := newBranches()
			for s, use := range uses {
				total := map[*core.Tensor][]float64{}
				for r, u := range use {
					nn.ZeroGrad(m)
					m.use = u
					require.NoError(t, backward(m, &collective.Rank{Rank: r}, s))
					for _, p := range nn.Parameters(m) {
						if p.Grad() == nil {
							continue
						}
						v, err := core.Values[float64](p.Grad())
						require.NoError(t, err)
						if total[p] == nil {
							total[p] = make([]float64, len(v))
						}
						for i := range v {
							total[p][i] += v[i] / 2
						}
					}
				}
				nn.ZeroGrad(m)
				for p, v := range total {
					p.SetGrad(core.FromSlice(v, p.Shape()...))
				}
				g, err := grads(m)
				require.NoError(t, err)
				want = append(want, g)
			}
		})
		spawn(t, 2, func(r *collective.Rank) error {
			if r.Rank == 0 {
				core.ManualSeed(9)
			}
			m := newBranches()
			o := small
			if view {
				o.FirstBucketBytes, o.BucketBytes = 300, 300 // several parameters per bucket
			}
			o.FindUnused, o.BucketView = true, view
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return err
			}
			for s, use := range uses {
				nn.ZeroGrad(p)
				m.use = use[r.Rank]
				if err := backward(p, r, s); err != nil {
					return err
				}
				g, err := grads(m)
				if err != nil {
					return err
				}
				if err := near(fmt.Sprint("step ", s), g, want[s], 1e-12); err != nil {
					return err
				}
			}
			if want := []int{10, 14}[r.Rank]; p.Reducer().Stats().Unused != want {
				return fmt.Errorf("%d gradients were missing, want %d", p.Reducer().Stats().Unused, want)
			}
			return p.Close()
		})
	}
}

// A missing gradient that a hook computed has memory of its own. The next step does not overwrite it.
func TestCase20GradientsFromHooksStay(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := newBranches()
		p, err := ddp.New(m, r.World, ddp.Options{FindUnused: true})
		if err != nil {
			return err
		}
		if err := p.Reducer().RegisterHook(ddp.AllReduceHook); err != nil {
			return err
		}
		var first *core.Tensor
		var before []float64
		for s := range 3 {
			nn.ZeroGrad(p)
			m.use = []string{"left", "right"}[r.Rank]
			if err := backward(p, r, s); err != nil {
				return err
			}
			if s == 0 {
				first = []*nn.Linear{m.Right, m.Left}[r.Rank].Weight.Grad().Detach()
				if before, err = core.Values[float64](first); err != nil {
					return err
				}
			}
		}
		after, err := core.Values[float64](first)
		return errors.Join(err, equal("the first step's gradient", after, before), p.Close())
	})
}

// With StaticGraph, the first step finds the unused parameters. A later step that uses one of them is an error.
func TestCase20StaticGraph(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := newBranches()
		o := small
		o.StaticGraph = true
		p, err := ddp.New(m, r.World, o)
		if err != nil {
			return err
		}
		m.use = "left"
		for s := range 3 {
			nn.ZeroGrad(p)
			if err := backward(p, r, s); err != nil {
				return err
			}
			if m.Right.Weight.Grad() != nil || m.Left.Weight.Grad() == nil {
				return errors.New("the wrong parameters have gradients")
			}
		}
		m.use = "right"
		if err := backward(p, r, 3); err == nil || !strings.Contains(err.Error(), "right.") || !strings.Contains(err.Error(), "static") {
			return fmt.Errorf("another part was used: %v", err)
		}
		return p.Close()
	})
}
