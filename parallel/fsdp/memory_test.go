package fsdp_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

const (
	side   = 192
	layers = 8
	// room is the memory allowed for activations, losses and inputs of one row.
	room = 64 << 10
)

// A slowLayer delays the stream of a rank.
type slowLayer struct {
	nn.Base
	pause time.Duration
}

func (l *slowLayer) Forward(x *core.Tensor) *core.Tensor {
	if l.pause > 0 {
		s := core.CurrentContext().Stream(x.Device())
		c := s.Begin(-1, "slow")
		c.Work = 1 << 30
		c.Fn = func() error { time.Sleep(l.pause); return nil }
		s.Launch(c)
	}
	return x
}

// deep returns a model of equal layers.
func deep(pause time.Duration) *nn.Sequential {
	core.ManualSeed(1)
	var list []nn.Layer
	for range layers {
		list = append(list, nn.NewSequential(&slowLayer{pause: pause}, nn.NewLinear(side, side, nn.LinearOptions{})))
	}
	return nn.NewSequential(list...)
}

// peaks are the peak numbers of bytes in each phase of a step, above those before the model was created.
type peaks struct{ forward, backward, step, zeroed, after, gathered int }

// measure trains a model for three steps and returns the peaks of the last one.
func measure(r *collective.Rank, o fsdp.Options, policy fsdp.Policy, pause time.Duration) (p peaks, err error) {
	if err := errors.Join(core.Synchronize(), r.World.Barrier()); err != nil {
		return p, err
	}
	usage := func() core.Usage { return core.RankUsage(r.Device, r.Rank) }
	base := usage().Current
	m := deep(pause)
	f, err := fsdp.New(m, r.World, policy, o)
	if err != nil {
		return p, err
	}
	opt, err := optimisers["adam"](nn.Parameters(m))
	if err != nil {
		return p, err
	}
	for range 3 {
		core.Tidy(func() {
			core.ResetPeak(r.Device)
			l := op.Mean(f.Forward(op.Ones(1, side)), nil, false)
			p.forward = usage().Peak - base
			core.ResetPeak(r.Device)
			if err = autograd.Backward(l); err != nil {
				return
			}
			p.backward = usage().Peak - base
			p.gathered = core.RankCategoryUsage(r.Device, r.Rank, core.Communication).Peak
			core.ResetPeak(r.Device)
			if err = opt.Step(); err != nil {
				return
			}
			p.step = usage().Peak - base
			opt.ZeroGrad()
			p.zeroed = usage().Current - base
		})
		if err != nil {
			return p, err
		}
	}
	opt.Release()
	if err := f.Close(); err != nil {
		return p, err
	}
	for _, t := range nn.Parameters(m) {
		t.Release()
	}
	p.after = usage().Current - base
	return p, nil
}

// TestCase29Memory checks peaks against the formulas in the package's documentation. They must not depend on a slow rank, and all
// memory must be freed at the end.
func TestCase29Memory(t *testing.T) {
	const world = 4
	devices := []string{"cpu:10", "cpu:11", "cpu:12", "cpu:13"} // no other test uses them
	u := 4 * (side*side + side)
	all := layers * u
	part := all / world
	for _, c := range []struct {
		o                 fsdp.Options
		forward, backward int
		gathered          int
	}{
		{fsdp.Options{}, part + 2*u, 2*part + 4*u, 2 * u},
		{fsdp.Options{NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever}, part + u, 2*part + 2*u, u},
		{fsdp.Options{Slots: 1}, part + u, 2*part + 3*u, u},
		{fsdp.Options{Partial: 2}, part + 2*u + all/2, 2*part + 4*u + all/2, 2*u + all/2},
		{fsdp.Options{KeepAfterForward: true}, part + all, part + all + 3*u/2, all},
	} {
		err := collective.Spawn(world, devices, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
			var first peaks
			for i, pause := range []time.Duration{0, time.Duration(r.Rank%2) * 3 * time.Millisecond} {
				p, err := measure(r, c.o, blocks, pause)
				if err != nil {
					return err
				}
				state := part // Adam has two such states
				if p.forward > c.forward+2*state+room || p.backward > c.backward+2*state+room {
					return fmt.Errorf("%+v: peaks %+v, want at most %d in forward and %d in backward, and the optimiser's state", c.o, p, c.forward, c.backward)
				}
				if p.gathered > c.gathered+room {
					return fmt.Errorf("%+v: %d bytes were gathered at once in backward, want at most %d", c.o, p.gathered, c.gathered)
				}
				if p.step > 4*part+room || p.zeroed > 3*part+room {
					return fmt.Errorf("%+v: peaks %+v, want at most %d in the step, and %d after it", c.o, p, 4*part, 3*part)
				}
				if p.after != 0 {
					return fmt.Errorf("%+v: %d bytes are left", c.o, p.after)
				}
				if i == 0 {
					first = p
				} else if p != first {
					return fmt.Errorf("%+v: peaks %+v with a slow rank, %+v without", c.o, p, first)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
}
