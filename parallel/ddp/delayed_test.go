package ddp_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// Delayed parameters get the same gradients as without delay, and their buckets are reduced last.
func TestCase16DelayedParameters(t *testing.T) {
	for _, view := range []bool{false, true} {
		spawn(t, 3, func(r *collective.Rank) error {
			var results [2][]float64
			for i, delayed := range []bool{false, true} {
				m := seededMLP(4)
				params := nn.Parameters(m)
				o := small
				o.BucketView = view
				if delayed {
					o.Delayed, o.Until = params[1:4], params[0]
				}
				p, err := ddp.New(m, r.World, o)
				if err != nil {
					return err
				}
				if delayed { // reduced after all others
					names := map[string]bool{}
					list := p.Reducer().Buckets()
					for _, b := range list[len(list)-2:] {
						for _, n := range b.Names() {
							names[n] = true
						}
					}
					if names[nn.NamedParameters(m)[0].Name] || names[nn.NamedParameters(m)[4].Name] {
						return fmt.Errorf("the last buckets hold %v", names)
					}
				}
				opt, err := optimisers["adam"](params)
				if err != nil {
					return err
				}
				for s := range 4 {
					x, y := batch(s, 4*r.Rank, 4*r.Rank+4)
					if _, err := step(p, opt, x, y); err != nil {
						return err
					}
				}
				if results[i], err = values(m); err != nil {
					return err
				}
				if s := p.Reducer().Stats(); s.Passes != 4 {
					return fmt.Errorf("%d passes", s.Passes)
				}
				if err := p.Close(); err != nil {
					return err
				}
			}
			return equal("with delayed parameters", results[1], results[0])
		})
	}
}

// If all parameters are delayed, they may get gradients in several backward passes of a step. Until may belong to another module.
func TestCase16DelayedOverSeveralPasses(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		run := func(delayed bool) ([]float64, error) {
			m := seededMLP(4)
			gate := op.Zeros(width).Detach().SetRequiresGrad(true)
			o := small
			if delayed {
				o.Delayed, o.Until = nn.Parameters(m), gate
			}
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return nil, err
			}
			defer p.Close()
			for i := range 3 {
				x, y := batch(i, 4*r.Rank, 4*r.Rank+4)
				backward := func() error {
					if i == 2 {
						x = op.Add(x, gate) // its gradient becomes final in the last pass
					}
					return autograd.Backward(mse(p.Forward(x), y))
				}
				if !delayed && i < 2 {
					err = p.NoSync(backward)
				} else {
					err = backward()
				}
				if err != nil {
					return nil, err
				}
				if delayed && i < 2 && p.Reducer().Stats().Buckets > 0 {
					return nil, fmt.Errorf("reduced in pass %d", i)
				}
			}
			return grads(m)
		}
		want, err := run(false)
		if err != nil {
			return err
		}
		got, err := run(true)
		if err != nil {
			return err
		}
		return near("gradients of three passes", got, want, 1e-12)
	})
}

// Invalid Delayed or Until are errors, and so is an Until that gets no gradient.
func TestCase16InvalidDelayed(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m, other := seededMLP(4), seededMLP(5)
		params := nn.Parameters(m)
		for want, o := range map[string]ddp.Options{
			"want one another":      {Delayed: params[:1]},
			"not one of the module": {Delayed: nn.Parameters(other)[:1], Until: params[0]},
			"requires a gradient":   {Delayed: params[:1], Until: op.Zeros(2)},
		} {
			_, err := ddp.New(m, r.World, o)
			require.ErrorContains(t, err, want)
		}
		p, err := ddp.New(m, r.World, ddp.Options{Delayed: params[:1], Until: nn.Parameters(other)[0]})
		if err != nil {
			return err
		}
		defer p.Close()
		x, y := batch(0, 0, 4)
		if err := autograd.Backward(mse(p.Forward(x), y)); err != nil {
			return err
		}
		require.ErrorContains(t, p.Forward(x).Err(), "the delayed ones wait for")
		return nil
	})
}

// Ranks with different Until get an error.
func TestCase25DifferentUntil(t *testing.T) {
	for what, until := range map[string]func(rank int, params []*core.Tensor) *core.Tensor{
		`"0.weight" on rank 0, "0.bias" on rank 1`: func(rank int, params []*core.Tensor) *core.Tensor { return params[rank] },
		`"0.weight" on rank 0, another module's float64[2] on rank 1`: func(rank int, params []*core.Tensor) *core.Tensor {
			return []*core.Tensor{params[0], op.Zeros(2).Detach().SetRequiresGrad(true)}[rank]
		},
	} {
		spawn(t, 2, func(r *collective.Rank) error {
			m := seededMLP(4)
			params := nn.Parameters(m)
			_, err := ddp.New(m, r.World, ddp.Options{Delayed: params[2:3], Until: until(r.Rank, params)})
			require.ErrorContains(t, err, "the delayed parameters wait for "+what)
			return nil
		})
	}
}

// With SkipUnused, buckets that no rank uses are not sent.
func TestCase20SkipUnused(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		var sent [2]int
		var results [2][]float64
		for i, skip := range []bool{false, true} {
			core.ManualSeed(9)
			m := newBranches()
			m.use = "left"
			o := small
			o.FindUnused, o.SkipUnused, o.BucketBytes = true, skip, 1
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return err
			}
			for s := range 2 {
				nn.ZeroGrad(m)
				if err := backward(p, r, s); err != nil {
					return err
				}
			}
			if m.Right.Weight.Grad() != nil {
				return fmt.Errorf("an unused parameter got a gradient")
			}
			sent[i] = r.World.Stats().Bytes["all_reduce"]
			if results[i], err = grads(m); err != nil {
				return err
			}
			if err := p.Close(); err != nil {
				return err
			}
		}
		if sent[1]-sent[0] >= sent[0] {
			return fmt.Errorf("sent %d bytes in all, and %d without the unused", sent[0], sent[1]-sent[0])
		}
		return equal("gradients", results[1], results[0])
	})
}
