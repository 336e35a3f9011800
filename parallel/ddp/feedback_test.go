package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
)

// constantGradient is a module whose weight has the same gradient in every step.
type constantGradient struct {
	nn.Base
	Weight   *core.Tensor
	gradient *core.Tensor
}

func (s *constantGradient) Forward(*core.Tensor) *core.Tensor { return op.Mul(s.Weight, s.gradient) }

// hookResults returns the reduced gradients of each step, with a hook and a constant gradient on each rank.
func hookResults(r *collective.Rank, hook ddp.Hook, steps int, gradient []float64, shape ...int) ([][]float64, error) {
	m := &constantGradient{Weight: op.Zeros(shape...).Keep().SetRequiresGrad(true), gradient: core.FromSlice(gradient, shape...)}
	p, err := ddp.New(m, r.World, ddp.Options{})
	if err != nil {
		return nil, err
	}
	if err := p.Reducer().RegisterHook(hook); err != nil {
		return nil, err
	}
	var all [][]float64
	for range steps {
		nn.ZeroGrad(p)
		if err := autograd.Backward(op.Sum(p.Forward(op.Zeros(1)), nil, false)); err != nil {
			return nil, err
		}
		g, err := grads(m)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, p.Close()
}

// Top-k adds elements that it did not send to the next step's gradients, until it sends them, once.
func TestCase23TopKFeedback(t *testing.T) {
	given := [][]float64{{5, 3, 2, 0}, {1, 2, 4, 3}}
	for _, feedback := range []bool{true, false} {
		spawn(t, 2, func(r *collective.Rank) error {
			const steps = 8
			var want [][]float64
			residual := [][]float64{make([]float64, 4), make([]float64, 4)}
			for range steps {
				sum := make([]float64, 4)
				for k, g := range given {
					most := 0
					for i := range g {
						residual[k][i] += g[i]
						if residual[k][i] > residual[k][most] {
							most = i
						}
					}
					sum[most] += residual[k][most] / 2
					residual[k][most] = 0
					if !feedback {
						residual[k] = make([]float64, 4)
					}
				}
				want = append(want, sum)
			}
			got, err := hookResults(r, (&ddp.TopK{Ratio: 0.25, NoErrorFeedback: !feedback}).Hook, steps, given[r.Rank], 4)
			if err != nil {
				return err
			}
			for s := range want {
				err = errors.Join(err, equal(fmt.Sprintf("feedback %v, step %d", feedback, s), got[s], want[s]))
			}
			return err
		})
	}
}

// PowerSGD starts to compress after StartStep steps. Without feedback, its power method converges to the largest component over the steps.
// With feedback, the mean over the steps has all components. The ranks' gradients are 4 and 2 at two elements of the diagonal, so the average
// has the components 2 and 1.
func TestCase23PowerSGDFeedback(t *testing.T) {
	const n, begin, steps = 12, 3, 60
	for _, batched := range []bool{false, true} {
		for _, feedback := range []bool{true, false} {
			spawn(t, 2, func(r *collective.Rank) error {
				mine := make([]float64, n*n)
				mine[r.Rank*(n+1)] = 4 / float64(1+r.Rank)
				hook := ddp.NewPowerSGD(ddp.PowerSGD{StartStep: begin, NoErrorFeedback: !feedback, Batched: batched, Seed: 1}).Hook
				got, err := hookResults(r, hook, begin+steps, mine, n, n)
				if err != nil {
					return err
				}
				what := fmt.Sprintf("batched %v, feedback %v", batched, feedback)
				largest, both := make([]float64, n*n), make([]float64, n*n)
				largest[0], both[0], both[n+1] = 2, 2, 1
				for s := range begin {
					if err := equal(fmt.Sprintf("%s, step %d", what, s), got[s], both); err != nil {
						return err
					}
				}
				if near(what, got[begin], both, 0.1) == nil {
					return fmt.Errorf("%s: the first step after %d was not compressed", what, begin)
				}
				if !feedback {
					return near(what, got[begin+steps-1], largest, 1e-6)
				}
				mean := make([]float64, n*n)
				for _, g := range got[begin:] {
					for i, v := range g {
						mean[i] += v / steps
					}
				}
				for i := range mean {
					if math.Abs(mean[i]-both[i]) > 0.1 {
						return fmt.Errorf("%s: over the steps, element %d is %v, want %v", what, i, mean[i], both[i])
					}
				}
				return nil
			})
		}
	}
}

// After Release nothing is held back any more: the next step is as the first one.
func TestReleasedHooks(t *testing.T) {
	const n = 12
	spawn(t, 2, func(r *collective.Rank) error {
		mine := make([]float64, n*n)
		for i := range mine {
			mine[i] = float64(i%7 + r.Rank + 1)
		}
		top, power := &ddp.TopK{Ratio: 0.25}, ddp.NewPowerSGD(ddp.PowerSGD{StartStep: 1})
		for _, h := range []struct {
			name    string
			hook    ddp.Hook
			release func()
		}{{"top_k", top.Hook, top.Release}, {"powersgd", power.Hook, power.Release}} {
			before, err := hookResults(r, h.hook, 3, mine, n, n)
			if err != nil {
				return err
			}
			if equal(h.name, before[1], before[0]) == nil {
				return fmt.Errorf("%s: the second step is as the first one", h.name)
			}
			h.release()
			after, err := hookResults(r, h.hook, 1, mine, n, n)
			if err != nil {
				return err
			}
			if err := equal(h.name+" after Release", after[0], before[0]); err != nil {
				return err
			}
		}
		return nil
	})
}
