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
	"github.com/plait-ml/plait/parallel/internal/ranktest"
)

// TestThreadsWithOneModule checks that threads that use one module at the same time get an error, and that it works afterwards.
func TestThreadsWithOneModule(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		d := core.Float32 // a mixed-precision policy, so that one rank all-gathers too
		f, err := fsdp.New(model(), r.World, blocks, fsdp.Options{Precision: fsdp.Precision{Param: &d}})
		if err != nil {
			return err
		}
		pass := func(thread int) (err error) {
			core.Tidy(func() {
				if thread == 2 {
					_, err = fullParams(f)
					return
				}
				x, y := batch(thread, 0, 4)
				l := mse(f.Forward(x), y)
				if err = l.Err(); err == nil {
					err = autograd.Backward(l)
				}
			})
			return err
		}
		if done, err := ranktest.Together(3, 20, pass); err != nil || done == 0 {
			return fmt.Errorf("%d passes succeeded: %w", done, err)
		}
		for _, p := range nn.Parameters(f.Module) {
			p.SetGrad(nil)
		}
		if err := pass(0); err != nil {
			return err
		}
		return f.Close()
	})
}

// TestThreadsDuringSummon checks that other threads cannot use a module while one thread shows full parameters.
func TestThreadsDuringSummon(t *testing.T) {
	half := core.Float32
	for _, o := range []fsdp.Options{{}, {Precision: fsdp.Precision{Param: &half}}} {
		spawn(t, 1, func(r *collective.Rank) error {
			f, err := fsdp.New(model(), r.World, blocks, o)
			if err != nil {
				return err
			}
			x, _ := batch(0, 0, 4)
			ctx := core.CurrentContext()
			elsewhere := func(fn func() error) error {
				told := make(chan error)
				go core.WithContext(ctx, func() { told <- fn() })
				return <-told
			}
			forward := func() error { return f.Forward(x).Err() }
			const refused = "two threads use one module"
			for range 2 {
				err = f.Summon(fsdp.SummonOptions{}, func() error {
					root := f.Tree().Units()[0]
					return errors.Join(
						contains(elsewhere(forward), refused),
						contains(elsewhere(func() error { return root.SummonEnd(fsdp.SummonOptions{}) }), refused),
						contains(elsewhere(func() error { _, err := fullParams(f); return err }), refused))
				})
				if err = errors.Join(err, elsewhere(forward), forward()); err != nil {
					return err
				}
			}
			// A Summon with bad options must not leave the module to its thread.
			if err := contains(f.Summon(fsdp.SummonOptions{First: true}, nil), "cannot be written back"); err != nil {
				return err
			}
			return errors.Join(elsewhere(forward), f.Close())
		})
	}
}

// TestRanksWithDifferentParameters checks the error if ranks have reduced gradients of different numbers of parameters.
func TestRanksWithDifferentParameters(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		f, err := fsdp.New(model(), r.World, nil, fsdp.Options{})
		if err != nil {
			return err
		}
		for _, u := range f.Tree().Units() { // replaces the reduce-scatter, which would fail first
			if err := u.RegisterHook(func(*fsdp.Reduction) error { return nil }); err != nil {
				return err
			}
		}
		if r.Rank == 1 {
			nn.Parameters(f.Module)[0].SetRequiresGrad(false)
		}
		x, y := batch(0, 0, 2)
		if err := autograd.Backward(mse(f.Forward(x), y)); err != nil {
			return err
		}
		want := "rank 0 has averaged the gradients of 9 parameters in the last backward pass, rank 1 those of 8"
		if r.Rank == 1 {
			want = "rank 1 has averaged the gradients of 8 parameters in the last backward pass, rank 0 those of 9"
		}
		return contains(f.Tree().Wait(), want)
	})
}
