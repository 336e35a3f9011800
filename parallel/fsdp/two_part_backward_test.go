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

// A productLayer multiplies by the product of two parameters. The gradient of each needs the other.
type productLayer struct {
	nn.Base
	A, B *core.Tensor `plait:"param"`
}

func newProduct() *productLayer {
	return &productLayer{A: op.Rand(5, 5).Keep().SetRequiresGrad(true), B: op.Rand(5, 5).Keep().SetRequiresGrad(true)}
}

func (p *productLayer) Forward(x *core.Tensor) *core.Tensor { return op.MatMul(x, op.MatMul(p.A, p.B)) }

// withProduct returns [model] with a [productLayer] in a unit of its own.
func withProduct() *nn.Sequential {
	m := model()
	return nn.NewSequential(append(m.Layers[:2:2], append([]nn.Layer{nn.NewSequential(newProduct(), nn.NewTanh())}, m.Layers[2:]...)...)...)
}

// A pass is a forward pass (F), a backward pass (B), or its first (I) or second part (W), for one micro-batch.
type pass struct {
	kind  byte
	micro int
}

// runPasses runs passes and returns the gradients of the shards.
func runPasses(f *fsdp.FullyShardedDataParallel, rank int, passes []pass) (all []float64, err error) {
	var inputs, losses [3]*core.Tensor
	var runs [3]*autograd.Run
	for _, p := range passes {
		core.Tidy(func() {
			switch i := p.micro; p.kind {
			case 'F':
				x, y := batch(i, 3*rank, 3*rank+3)
				inputs[i] = x.Keep().SetRequiresGrad(true)
				losses[i] = mse(f.Forward(op.Mul(inputs[i], core.Num(1))), y).Keep()
			case 'B':
				err = autograd.Backward(losses[i])
			case 'I':
				if runs[i], err = autograd.NewRun(losses[i:i+1], nil, autograd.Options{First: inputs[i : i+1]}); err == nil {
					_, err = runs[i].Step()
				}
				if err == nil && inputs[i].Grad() == nil {
					err = errors.New("the first part made no gradient of the input")
				}
			case 'W':
				runs[i].Rest()
				_, err = runs[i].Step()
				runs[i].Close()
			}
		})
		if err != nil {
			return nil, fmt.Errorf("%c%d: %w", p.kind, p.micro, err)
		}
	}
	for _, t := range nn.Parameters(f.Module) {
		v, err := values([]*core.Tensor{t.Grad()})
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
		t.SetGrad(nil)
	}
	return all, nil
}

// TestTwoPartBackward checks that two-part backward passes, with other passes between the parts, give gradients that are bitwise
// equal to those of ordinary passes. The second part may all-gather only units whose parameters it reads.
func TestTwoPartBackward(t *testing.T) {
	whole := []pass{{'F', 0}, {'F', 1}, {'B', 0}, {'F', 2}, {'B', 1}, {'B', 2}}
	twoPart := []pass{{'F', 0}, {'F', 1}, {'I', 0}, {'F', 2}, {'I', 1}, {'W', 0}, {'I', 2}, {'W', 1}, {'W', 2}}
	for _, o := range []fsdp.Options{{}, {Slots: 1}, {KeepAfterForward: true}, {NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever}} {
		spawn(t, 3, func(r *collective.Rank) error {
			f, err := fsdp.New(withProduct(), r.World, blocks, o)
			if err != nil {
				return err
			}
			want, err := runPasses(f, r.Rank, whole)
			if err != nil {
				return err
			}
			before := f.Tree().Units()
			gathers := make([]int, len(before))
			for i, u := range before {
				gathers[i] = u.Stats().Gathers
			}
			got, err := runPasses(f, r.Rank, twoPart)
			if err != nil {
				return err
			}
			if err := equal(fmt.Sprintf("%+v", o), got, want); err != nil {
				return err
			}
			for i, u := range f.Tree().Units() {
				n, extra := u.Stats().Gathers-gathers[i], 0
				if u.Name() == "2" {
					extra = 3 // on demand, for the gradients of productLayer
				}
				if i > 0 && !o.KeepAfterForward && n > 6+extra {
					return fmt.Errorf("%+v: unit %q was gathered %d times, want at most %d", o, u.Name(), n, 6+extra)
				}
			}
			return f.Close()
		})
	}
}

// TestTwoPartBackwardGivenUp gives a pass up between its parts. The next pass's gradients must not be affected.
func TestTwoPartBackwardGivenUp(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		f, err := fsdp.New(withProduct(), r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		want, err := runPasses(f, r.Rank, []pass{{'F', 1}, {'B', 1}})
		if err != nil {
			return err
		}
		core.Tidy(func() {
			x, y := batch(0, 0, 3)
			x.SetRequiresGrad(true)
			var run *autograd.Run
			run, err = autograd.NewRun([]*core.Tensor{mse(f.Forward(op.Mul(x, core.Num(1))), y)}, nil, autograd.Options{First: []*core.Tensor{x}})
			if err == nil {
				_, err = run.Step()
				run.Close()
			}
		})
		if err != nil {
			return err
		}
		got, err := runPasses(f, r.Rank, []pass{{'F', 1}, {'I', 1}, {'W', 1}})
		if err != nil {
			return err
		}
		return errors.Join(equal("after a pass that was given up", got, want), f.Close())
	})
}

// TestTwoPartBackwardMemory is case 29 for two-part backward: the peak memory of each part, and of its full parameters, against
// the formulas in the package's documentation.
func TestTwoPartBackwardMemory(t *testing.T) {
	const world = 4
	devices := []string{"cpu:20", "cpu:21", "cpu:22", "cpu:23"} // no other test uses them
	u := 4 * (side*side + side)
	part := layers * u / world
	require.NoError(t, collective.Spawn(world, devices, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
		usage := func(cat core.Category) int { return core.RankCategoryUsage(r.Device, r.Rank, cat).Peak }
		base := core.RankUsage(r.Device, r.Rank).Current
		m := deep(time.Duration(r.Rank%2) * time.Millisecond)
		f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		for range 2 { // the first pass creates gradients
			core.Tidy(func() {
				x := op.Ones(1, side).SetRequiresGrad(true)
				l := op.Mean(f.Forward(op.Mul(x, core.Num(1))), nil, false)
				var run *autograd.Run
				if run, err = autograd.NewRun([]*core.Tensor{l}, nil, autograd.Options{First: []*core.Tensor{x}}); err != nil {
					return
				}
				defer run.Close()
				for i, most := range []struct{ all, gathered int }{{2*part + 2*u, 2 * u}, {2*part + 2*u, 0}} {
					if err = r.World.Barrier(); err != nil {
						return
					}
					core.ResetPeak(r.Device)
					if i == 1 {
						run.Rest()
					}
					if _, err = run.Step(); err != nil {
						return
					}
					if p := core.RankUsage(r.Device, r.Rank).Peak - base; p > most.all+room {
						err = fmt.Errorf("part %d: a peak of %d bytes, want at most %d", i+1, p, most.all)
						return
					}
					if p := usage(core.Communication); p > most.gathered+room {
						err = fmt.Errorf("part %d: %d bytes were gathered at once, want at most %d", i+1, p, most.gathered)
						return
					}
				}
			})
			if err != nil {
				return err
			}
		}
		return f.Close()
	}))
}
