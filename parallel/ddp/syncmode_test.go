package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// A staleness bound of 0 must match synchronous training bitwise. With a bound of 1, each rank's update is a step of its own.
func TestBoundOfZeroIsSynchronous(t *testing.T) {
	train := func(m ddp.SyncMode) (all []float64) {
		spawn(t, 3, func(r *collective.Rank) error {
			p, err := ddp.New(seededMLP(7), r.World, small)
			if err != nil {
				return err
			}
			o, err := optim.NewAdam(nn.Parameters(p), optim.Hyper{"lr": 0.01})
			if err != nil {
				return err
			}
			red := p.Reducer()
			if err := red.SetSyncMode(m, o); err != nil {
				return err
			}
			for s := range 4 {
				o.ZeroGrad()
				if err := errors.Join(backward(p, r, s), red.Step()); err != nil {
					return err
				}
				if c := red.Clocks(); m.Max == 0 && (!slices.Equal(c, []int{s + 1, s + 1, s + 1}) || red.Staleness() != 0) {
					return fmt.Errorf("after step %d the clocks are %v", s, c)
				}
			}
			if err := red.SetSyncMode(ddp.SyncMode{}, o); err != nil {
				return err
			}
			updates := 4.0
			if m.Max > 0 {
				updates *= 3 // of 3 ranks
			}
			for i := range nn.Parameters(p) {
				if st, ok := o.State(i); !ok || st.Step != updates {
					return fmt.Errorf("parameter %d had %v updates, want %v", i, st.Step, updates)
				}
			}
			v, err := values(p)
			if r.Rank == 0 {
				all = v
			}
			return errors.Join(err, checkSameParameters(r, p), p.Close())
		})
		return all
	}
	want := train(ddp.SyncMode{})
	require.Equal(t, want, train(ddp.SyncMode{Kind: ddp.BoundedStaleness}))
	require.NotEqual(t, want, train(ddp.SyncMode{Kind: ddp.BoundedStaleness, Max: 1}))
}

// constant has parameters of zeros, and gradients that the test chooses.
type constant struct {
	nn.Base
	A, B, C *core.Tensor
}

func newConstant() *constant {
	zeros := func(n int) *core.Tensor { return op.Zeros(n).Keep().SetRequiresGrad(true) }
	return &constant{A: zeros(3), B: zeros(5), C: zeros(1)}
}

// backwardWith runs a backward pass that gives every element of the parameters the gradient g.
func (c *constant) backwardWith(g float64) error {
	var sum *core.Tensor
	for _, p := range []*core.Tensor{c.A, c.B, c.C} {
		s := op.Mul(op.Sum(p, nil, false), core.Num(g))
		if sum != nil {
			s = op.Add(sum, s)
		}
		sum = s
	}
	return autograd.Backward(sum)
}

// Each rank's updates are applied exactly once in every mode, also if ranks make different numbers of steps.
func TestUpdatesAreAppliedOnce(t *testing.T) {
	for _, m := range []ddp.SyncMode{{Kind: ddp.BoundedStaleness, Max: 1}, {Kind: ddp.BoundedStaleness, Max: 3}, {Kind: ddp.Asynchronous}} {
		spawn(t, 3, func(r *collective.Rank) error {
			c := newConstant()
			p, err := ddp.New(c, r.World, ddp.Options{})
			if err != nil {
				return err
			}
			o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{"lr": 1})
			if err != nil {
				return err
			}
			red := p.Reducer()
			if err := red.SetSyncMode(m, o); err != nil {
				return err
			}
			want := 0.0
			for rank := range 3 {
				for s := range 10 + 2*rank {
					g := float64(3 * (1 + s + 100*rank))
					want -= g / 3
					if rank != r.Rank {
						continue
					}
					o.ZeroGrad()
					if err := errors.Join(p.Begin(1), c.backwardWith(g), red.Step()); err != nil {
						return err
					}
					if m.Kind == ddp.BoundedStaleness && red.Staleness() > m.Max {
						return fmt.Errorf("the rank was %d steps ahead, the bound is %d", red.Staleness(), m.Max)
					}
				}
			}
			if err := p.Close(); err != nil {
				return err
			}
			v, err := values(c)
			if err != nil {
				return err
			}
			for i := range v {
				if v[i] != want {
					return fmt.Errorf("%v: value %d is %v, want %v", m, i, v[i], want)
				}
			}
			return nil
		})
	}
}

// An owner does not update parameters without a gradient. It uses the learning rate of its own rank's last step.
func TestOwnersSkipMissingGradients(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		c := newConstant()
		for _, p := range nn.Parameters(c) {
			op.FillInPlace(p.Detach(), core.Num(1))
		}
		p, err := ddp.New(c, r.World, ddp.Options{})
		if err != nil {
			return err
		}
		o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{"lr": 1, "weight_decay": 0.5})
		if err != nil {
			return err
		}
		if err := p.Reducer().SetSyncMode(ddp.SyncMode{Kind: ddp.Asynchronous}, o); err != nil {
			return err
		}
		var settled []float64
		for s := range 5 {
			if s == 2 {
				if err := o.Groups()[0].Set("lr", 0); err != nil {
					return err
				}
			}
			o.ZeroGrad()
			if err := errors.Join(p.Begin(1), autograd.Backward(op.Sum(c.A, nil, false)), p.Reducer().Step()); err != nil {
				return err
			}
			if s == 2 { // from here on both owners use the new rate
				if err := r.World.Barrier(); err != nil {
					return err
				}
			}
			now, err := values(c)
			if err != nil {
				return err
			}
			if s == 4 && !slices.Equal(now, settled) {
				return fmt.Errorf("with a learning rate of 0, %v became %v", settled, now)
			}
			settled = now
		}
		if err := p.Close(); err != nil {
			return err
		}
		v, err := values(c)
		if err != nil {
			return err
		}
		if want := []float64{1, 1, 1, 1, 1, 1}; !slices.Equal(v[3:], want) {
			return fmt.Errorf("the parameters without a gradient are %v, want %v", v[3:], want)
		}
		return nil
	})
}

// A rank waits only while it is more than the bound ahead of the slowest.
func TestFastRankWaits(t *testing.T) {
	const bound = 2
	ahead := make(chan struct{})
	done := make(chan int, 100)
	spawn(t, 2, func(r *collective.Rank) error {
		c := newConstant()
		p, err := ddp.New(c, r.World, ddp.Options{})
		if err != nil {
			return err
		}
		o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{"lr": 1})
		if err != nil {
			return err
		}
		red := p.Reducer()
		if err := red.SetSyncMode(ddp.SyncMode{Kind: ddp.BoundedStaleness, Max: bound}, o); err != nil {
			return err
		}
		one := func() error {
			o.ZeroGrad()
			return errors.Join(p.Begin(1), c.backwardWith(2), red.Step())
		}
		if r.Rank == 0 {
			for s := range 4 {
				if err := one(); err != nil {
					return err
				}
				done <- s + 1
				if s == bound-1 {
					close(ahead)
				}
			}
			if red.Staleness() != bound {
				return fmt.Errorf("the largest staleness was %d", red.Staleness())
			}
			return p.Close()
		}
		<-ahead // rank 0 has made as many steps as the bound allows
		time.Sleep(50 * time.Millisecond)
		if n := len(done); n != bound {
			return fmt.Errorf("rank 0 made %d steps before this one made any, the bound is %d", n, bound)
		}
		for range 2 {
			if err := one(); err != nil {
				return err
			}
		}
		if c := red.Clocks(); c[1] != 2 || c[0] < bound {
			return fmt.Errorf("the clocks are %v", c)
		}
		return p.Close()
	})
}

// In the asynchronous mode, no rank waits for a rank that makes no steps.
func TestAsynchronousRanksDoNotWait(t *testing.T) {
	finished := make(chan struct{})
	spawn(t, 2, func(r *collective.Rank) error {
		c := newConstant()
		p, err := ddp.New(c, r.World, ddp.Options{})
		if err != nil {
			return err
		}
		o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{"lr": 1, "momentum": 0.5})
		if err != nil {
			return err
		}
		red := p.Reducer()
		if err := red.SetSyncMode(ddp.SyncMode{Kind: ddp.Asynchronous}, o); err != nil {
			return err
		}
		if r.Rank == 1 {
			<-finished
			return p.Close()
		}
		for range 8 {
			o.ZeroGrad()
			if err := errors.Join(p.Begin(1), c.backwardWith(2), red.Step()); err != nil {
				return err
			}
		}
		if red.Staleness() != 8 {
			return fmt.Errorf("the largest staleness was %d", red.Staleness())
		}
		close(finished)
		return p.Close()
	})
}

func TestSyncModeErrors(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		p, err := ddp.New(mlp(), r.World, ddp.Options{})
		if err != nil {
			return err
		}
		red := p.Reducer()
		o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{})
		if err != nil {
			return err
		}
		other, err := optim.NewSGD(nn.Parameters(mlp()), optim.Hyper{})
		if err != nil {
			return err
		}
		for _, c := range []struct {
			err  error
			want string
		}{
			{red.SetSyncMode(ddp.SyncMode{Kind: 9}, o), "unknown mode"},
			{red.SetSyncMode(ddp.SyncMode{Kind: ddp.BoundedStaleness, Max: -1}, o), "0 or more"},
			{red.SetSyncMode(ddp.SyncMode{Kind: ddp.Asynchronous}, nil), "no optimiser"},
			{red.Step(), "no optimiser"},
			{red.SetSyncMode(ddp.SyncMode{Kind: ddp.Asynchronous}, other), "not one of the module"},
			{red.SetSyncMode(ddp.SyncMode{Kind: ddp.BoundedStaleness, Max: 1 + r.Rank}, o), "rank 0 wants bounded_staleness(1) with sgd, rank 1 bounded_staleness(2)"},
		} {
			if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
				return fmt.Errorf("got %v, want %s", c.err, c.want)
			}
		}
		return errors.Join(backward(p, r, 0), p.Close()) // synchronous as before
	})
}

// If a rank fails, training on the other ranks ends with an error that names it.
func TestSyncModeWithAFailedRank(t *testing.T) {
	err := trySpawn(2, func(r *collective.Rank) error {
		c := newConstant()
		p, err := ddp.New(c, r.World, ddp.Options{})
		if err != nil {
			return err
		}
		o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{})
		if err != nil {
			return err
		}
		if err := p.Reducer().SetSyncMode(ddp.SyncMode{Kind: ddp.BoundedStaleness, Max: 1}, o); err != nil {
			return err
		}
		if r.Rank == 1 {
			return errors.New("out of luck")
		}
		for range 5 {
			if err := errors.Join(c.backwardWith(1), p.Reducer().Step()); err != nil {
				return err
			}
		}
		return p.Close()
	})
	require.ErrorContains(t, err, "rank 1: out of luck")
	require.ErrorContains(t, err, "rank 1 is gone")
}
