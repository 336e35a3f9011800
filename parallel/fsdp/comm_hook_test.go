package fsdp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// TestCommHooks checks that a communication hook that does what FSDP does without one gives bitwise equal parameters: for sharded
// and replicated, used and unused parameters, and with gradient accumulation.
func TestCommHooks(t *testing.T) {
	spawn(t, 3, func(r *collective.Rank) error {
		for _, c := range []struct {
			group *collective.Group
			o     fsdp.Options
		}{{r.World, fsdp.Options{}}, {r.World, fsdp.Options{KeepAfterForward: true}}, {nil, fsdp.Options{Replicas: r.World}}} {
			var all [][]float64
			for _, hooked := range []bool{false, true} {
				m := model()
				f, err := fsdp.New(m, c.group, blocks, c.o)
				if err != nil {
					return err
				}
				calls, here := 0, core.CurrentContext().Stream(nn.Parameters(m)[0].Device())
				for _, u := range f.Tree().Units() {
					if !hooked {
						continue
					}
					err := u.RegisterHook(func(d *fsdp.Reduction) error {
						calls++
						beside := core.CurrentContext().Stream(d.Full.Device())
						if beside == here || d.Context().Stream(d.Full.Device()) != beside {
							return errors.New("the hook runs where backward computes")
						}
						if d.Part == d.Full {
							return d.Group.AllReduce(d.Full, collective.Avg).Wait()
						}
						return d.Group.ReduceScatterInto(d.Part, d.Full, collective.Avg).Wait()
					})
					if err != nil {
						return err
					}
				}
				opt, err := optimisers["adam"](nn.Parameters(m))
				if err != nil {
					return err
				}
				for s := range 3 {
					x, y := batch(s, r.Rank*2, r.Rank*2+2)
					if _, err := step(f.Forward, opt, x, y); err != nil {
						return err
					}
					if err := autograd.Backward(mse(f.Forward(x), y)); err != nil { // accumulates
						return err
					}
				}
				if want := 6 * len(f.Tree().Units()); hooked && calls != want {
					return fmt.Errorf("%d calls of the hook, want %d", calls, want)
				}
				got, err := fullParams(f)
				if err != nil {
					return err
				}
				all = append(all, got)
				opt.Release()
				if err := f.Close(); err != nil {
					return err
				}
			}
			if err := equal("with a hook", all[1], all[0]); err != nil {
				return fmt.Errorf("%+v: %w", c.o, err)
			}
		}
		return nil
	})
}

// TestBadCommHooks checks the errors of RegisterHook, and that backward returns the hook's error.
func TestBadCommHooks(t *testing.T) {
	spawn(t, 4, func(r *collective.Rank) error {
		shards, copies, err := hybridGroups(r)
		if err != nil {
			return err
		}
		none := func(*fsdp.Reduction) error { return errors.New("a fault of the hook") }
		hybrid, err := fsdp.New(model(), shards, nil, fsdp.Options{Replicas: copies})
		if err != nil {
			return err
		}
		f, err := fsdp.New(model(), r.World, nil, fsdp.Options{})
		if err != nil {
			return err
		}
		u := f.Tree().Units()[0]
		x, y := batch(0, 0, 2)
		for _, c := range []struct {
			err  error
			want string
		}{
			{u.RegisterHook(nil), "got no function"},
			{hybrid.Tree().Units()[0].RegisterHook(none), "hybrid sharding"},
			{u.RegisterHook(none), ""},
			{u.RegisterHook(none), "there can be only one"},
			{autograd.Backward(mse(f.Forward(x), y)), "a fault of the hook"},
		} {
			if c.want != "" || c.err != nil {
				if err := contains(c.err, c.want); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
