package fsdp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// A hook that reduces as the unit would trains as without one, bit for bit: parameters of every size, divided or not, used or
// not, gradients that add up.
func TestHooks(t *testing.T) {
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
					if err := autograd.Backward(mse(f.Forward(x), y)); err != nil { // adds to the gradients of the step
						return err
					}
				}
				if want := 6 * len(f.Tree().Units()); hooked && calls != want {
					return fmt.Errorf("%d calls of the hook, want %d", calls, want)
				}
				got, err := gathered(f)
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

func TestBadHooks(t *testing.T) {
	spawn(t, 4, func(r *collective.Rank) error {
		shards, copies, err := grid(r)
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

// Full parameters are shown with gradients, on another device, on the first rank alone; changes go back where they may.
func TestSummonOptions(t *testing.T) {
	other, err := core.OpenDevice("cpu:3")
	require.NoError(t, err)
	spawn(t, 3, func(r *collective.Rank) error {
		for _, group := range []*collective.Group{r.World, nil} {
			o := fsdp.Options{}
			if group == nil {
				o.Replicas = r.World
			}
			m := model()
			f, err := fsdp.New(m, group, blocks, o)
			if err != nil {
				return err
			}
			x, y := batch(0, r.Rank, r.Rank+1)
			if err := autograd.Backward(mse(f.Forward(x), y)); err != nil {
				return err
			}
			want, err := gathered(f)
			if err != nil {
				return err
			}
			var grads []float64
			if group != nil {
				if grads, err = fullGrads(f); err != nil {
					return err
				}
			}
			shapes := fmt.Sprint(nn.Parameters(m)[0].Shape())
			for _, dev := range []core.Device{nil, other} {
				err = f.Summon(fsdp.SummonOptions{Gradients: true, Device: dev}, func() error {
					got, err := values(nn.Parameters(m))
					if err := errors.Join(err, equal("parameters", got, want)); err != nil {
						return err
					}
					if d := nn.Parameters(m)[0].Device(); dev != nil && d != dev {
						return fmt.Errorf("shown on %v", d)
					}
					var gs []*core.Tensor
					for _, p := range nn.Parameters(m) {
						gs = append(gs, p.Grad())
					}
					if got, err = values(gs); err != nil {
						return err
					}
					if grads != nil {
						err = equal("gradients", got, grads)
					}
					core.NoGrad(func() {
						for i, p := range nn.Parameters(m) {
							err = errors.Join(err, op.MulInPlace(p, core.Num(2)).Err(), op.MulInPlace(gs[i], core.Num(2)).Err())
						}
					})
					return err
				})
				if err != nil {
					return err
				}
				for i := range want {
					want[i] *= 2
				}
				for i := range grads {
					grads[i] *= 2
				}
				if s := fmt.Sprint(nn.Parameters(m)[0].Shape()); s != shapes {
					return fmt.Errorf("afterwards a shape of %s, want %s", s, shapes)
				}
			}
			if got, err := fullGradsOf(f, group != nil); err != nil || group != nil && equal("gradients", got, grads) != nil {
				return fmt.Errorf("gradients were not written back: %w", err)
			}
			err = f.Summon(fsdp.SummonOptions{ReadOnly: true, First: true}, func() error {
				if whole := nn.Parameters(m)[0].Size(0) == 8; whole != (r.Rank == 0 || group == nil) {
					return fmt.Errorf("rank %d has a shape of %v", r.Rank, nn.Parameters(m)[0].Shape())
				}
				return nil
			})
			if err != nil {
				return err
			}
			after, err := gathered(f)
			if err := errors.Join(err, equal("parameters", after, want)); err != nil {
				return err
			}
			if err := contains(f.Summon(fsdp.SummonOptions{First: true}, func() error { return nil }), "cannot be written back"); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

func fullGradsOf(f *fsdp.FullyShardedDataParallel, divided bool) ([]float64, error) {
	if !divided {
		return nil, nil
	}
	return fullGrads(f)
}
