package fsdp_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/stretchr/testify/require"
)

// TestCase31Accumulation checks that gradients accumulated over several passes are those of one large batch, with a reduction in
// each pass and in the last pass only.
func TestCase31Accumulation(t *testing.T) {
	const world, parts = 2, 3
	var want []float64
	in64(t, func() {
		m := model()
		for i := range parts {
			x, y := batch(i, 0, 2*world)
			require.NoError(t, autograd.Backward(mse(m.Forward(x), y)))
		}
		for _, p := range nn.Parameters(m) {
			v, err := values([]*core.Tensor{p.Grad()})
			require.NoError(t, err)
			want = append(want, v...)
		}
	})
	for _, send := range []bool{true, false} {
		for _, o := range []fsdp.Options{{}, {KeepAfterForward: true}} {
			spawn(t, world, func(r *collective.Rank) error {
				m := model()
				f, err := fsdp.New(m, r.World, blocks, o)
				if err != nil {
					return err
				}
				for i := range parts {
					pass := func() error {
						x, y := batch(i, r.Rank*2, (r.Rank+1)*2)
						return autograd.Backward(mse(f.Forward(x), y))
					}
					if i < parts-1 && !send {
						before := r.World.Stats().Bytes["reduce_scatter"]
						if err := f.NoSync(pass); err != nil {
							return err
						}
						if r.World.Stats().Bytes["reduce_scatter"] != before {
							return errors.New("a pass without synchronisation reduced gradients")
						}
					} else if err := pass(); err != nil {
						return err
					}
				}
				got, err := fullGradients(f)
				return errors.Join(err, near("gradients", got, want, 1e-9), f.Close())
			})
		}
	}
}

// fullGradients returns the full gradients of all parameters of the model.
func fullGradients(f *fsdp.FullyShardedDataParallel) ([]float64, error) {
	if err := f.Settle(); err != nil {
		return nil, err
	}
	var all []float64
	for _, p := range nn.Parameters(f.Module) {
		v, err := core.Values[float64](tensor.Full(p.Grad()))
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

// TestCase32ClipGradNorm checks that the norm of sharded gradients is that of the full gradients, and that clipping scales by it.
func TestCase32ClipGradNorm(t *testing.T) {
	for _, power := range []float64{1, 2, 3, math.Inf(1)} {
		var want float64
		var clipped []float64
		in64(t, func() {
			m := model()
			x, y := batch(0, 0, 6)
			require.NoError(t, autograd.Backward(mse(m.Forward(x), y)))
			var err error
			want, err = optim.ClipGradNorm(nn.Parameters(m), 0.05, optim.ClipOptions{Norm: power}).Item()
			require.NoError(t, err)
			for _, p := range nn.Parameters(m) {
				v, err := values([]*core.Tensor{p.Grad()})
				require.NoError(t, err)
				clipped = append(clipped, v...)
			}
		})
		spawn(t, 3, func(r *collective.Rank) error {
			f, err := fsdp.New(model(), r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			x, y := batch(0, r.Rank*2, (r.Rank+1)*2)
			if err := autograd.Backward(mse(f.Forward(x), y)); err != nil {
				return err
			}
			got, err := f.ClipGradNorm(0.05, optim.ClipOptions{Norm: power}).Item()
			if err != nil {
				return err
			}
			grads, err := fullGradients(f)
			return errors.Join(err, near("norm", []float64{got}, []float64{want}, 1e-9), near("clipped", grads, clipped, 1e-9), f.Close())
		})
	}
}

// TestUnusedParameters checks that a parameter that no rank uses keeps its gradient, if it has one, and that a parameter that
// some rank uses gets the average on every rank.
func TestUnusedParameters(t *testing.T) {
	spawn(t, 3, func(r *collective.Rank) error {
		a, b, c := nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{})
		m := nn.NewSequential(a, b, c)
		f, err := fsdp.New(m, r.World, nil, fsdp.Options{})
		if err != nil {
			return err
		}
		x, y := batch(0, 0, 2)
		pass := func(withB bool) error {
			out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
				z := nn.Call(a, in[0])
				if withB {
					z = op.Add(z, nn.Call(b, in[0]))
				}
				return []*core.Tensor{mse(z, in[1])}
			}, x, y)
			if err != nil {
				return err
			}
			return autograd.Backward(out[0])
		}
		var before []float64
		for i, withB := range []bool{r.Rank == 1, false} {
			if err := pass(withB); err != nil {
				return err
			}
			for k, l := range []*nn.Linear{a, b, c} {
				if has := l.Weight.Grad() != nil; has != (k < 2) {
					return fmt.Errorf("pass %d: layer %d has a gradient: %v", i, k, has)
				}
			}
			now, err := values([]*core.Tensor{b.Weight.Grad()})
			if err != nil {
				return err
			}
			if i > 0 {
				if err := equal("the gradient of what was not used again", now, before); err != nil {
					return err
				}
			}
			before = now
		}
		return f.Close()
	})
}

// TestDivideFactor checks that sums of gradients are divided once, by the divide factor or by the number of ranks: for sharding,
// replicas and hybrid sharding.
func TestDivideFactor(t *testing.T) {
	const world = 4
	spawn(t, world, func(r *collective.Rank) error {
		shards, copies, err := hybridGroups(r)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			name  string
			group *collective.Group
			o     fsdp.Options
		}{
			{"sharded", r.World, fsdp.Options{}}, {"replicas", nil, fsdp.Options{Replicas: r.World}}, {"both", shards, fsdp.Options{Replicas: copies}},
		} {
			for _, factor := range []float64{0, 1, 16} {
				m := &scaled{Weight: op.Ones(3).Keep().SetRequiresGrad(true)}
				f, err := fsdp.New(m, c.group, nil, c.o)
				if err != nil {
					return err
				}
				f.Tree().Units()[0].SetDivideFactor(factor)
				x := op.Full([]int{3}, core.Num(float64(r.Rank+1)), op.TensorOptions{})
				for range 2 { // the second pass accumulates
					if err := autograd.Backward(op.Sum(f.Forward(x), nil, false)); err != nil {
						return err
					}
				}
				got, err := values([]*core.Tensor{m.Weight.Grad()})
				if err != nil {
					return err
				}
				want := 2 * 10.0 / factor
				if factor == 0 {
					want = 2 * 10.0 / world
				}
				for _, v := range got {
					if v != want {
						return fmt.Errorf("%s, divided by %v: got %v, want %v", c.name, factor, got, want)
					}
				}
				if err := f.Close(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestCase31UnitsUsedWithoutSync uses a unit only in a pass without synchronisation. The next pass with synchronisation must
// reduce its gradients, although it does not use the unit.
func TestCase31UnitsUsedWithoutSync(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		a, b := &scaled{Weight: op.Ones(4).Keep().SetRequiresGrad(true)}, &scaled{Weight: op.Ones(4).Keep().SetRequiresGrad(true)}
		f, err := fsdp.New(nn.NewSequential(a, b), r.World, fsdp.ByType(a), fsdp.Options{})
		if err != nil {
			return err
		}
		x := op.Full([]int{4}, core.Num(float64(r.Rank+1)), op.TensorOptions{})
		pass := func(withB bool) error {
			out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
				y := nn.Call(a, in[0])
				if withB {
					y = op.Add(y, nn.Call(b, in[0]))
				}
				return []*core.Tensor{op.Sum(y, nil, false)}
			}, x)
			if err != nil {
				return err
			}
			return autograd.Backward(out[0])
		}
		if err := errors.Join(f.NoSync(func() error { return pass(true) }), pass(false)); err != nil {
			return err
		}
		for i, m := range []*scaled{a, b} {
			v, err := values([]*core.Tensor{m.Weight.Grad()})
			if want := []float64{3, 1.5}[i]; err != nil || v[0] != want {
				return fmt.Errorf("layer %d: got %v, %v, want %v", i, v, err, want)
			}
		}
		return f.Close()
	})
}

// TestDroppedGradients checks that a gradient that the caller sets to nil between passes without synchronisation stays dropped.
func TestDroppedGradients(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		for _, group := range []*collective.Group{r.World, nil} {
			o := fsdp.Options{}
			if group == nil {
				o.Replicas = r.World
			}
			m := &scaled{Weight: op.Ones(4).Keep().SetRequiresGrad(true)}
			f, err := fsdp.New(m, group, nil, o)
			if err != nil {
				return err
			}
			u := f.Tree().Units()[0]
			u.SetDivideFactor(1)
			for _, sync := range []bool{true, false, true} {
				u.SetSync(sync)
				x := op.Full([]int{4}, core.Num(float64(r.Rank+1)), op.TensorOptions{})
				if err := autograd.Backward(op.Sum(f.Forward(x), nil, false)); err != nil {
					return err
				}
				if !sync {
					if err := u.Unshard(); err != nil {
						return err
					}
					m.Weight.SetGrad(nil) // the full gradient
					u.Reshard()
					m.Weight.SetGrad(nil)
				}
			}
			v, err := values([]*core.Tensor{m.Weight.Grad()})
			if err != nil || v[0] != 3 {
				return fmt.Errorf("sharded %v: got %v, %v, want 3", group != nil, v, err)
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestChangedShards changes shards while full parameters, or parts of them, are kept after forward or after backward. The next
// forward pass must gather them again.
func TestChangedShards(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, o := range []fsdp.Options{{}, {KeepAfterForward: true}, {Partial: 2}} {
			spawn(t, 4, func(r *collective.Rank) error {
				m := &scaled{Weight: op.Ones(8).Keep().SetRequiresGrad(true)}
				f, err := fsdp.New(nn.NewSequential(m), r.World, fsdp.ByType(m), o)
				if err != nil {
					return err
				}
				for _, u := range f.Tree().Units() {
					u.SetReshardAfterBackward(!keep)
				}
				for want := 1.0; want < 4; want++ {
					y := op.Sum(f.Forward(op.Ones(8)), nil, false)
					if got, err := y.Item(); err != nil || got != 8*want {
						return fmt.Errorf("%+v, keep %v: got %v, %v, want %v", o, keep, got, err, 8*want)
					}
					if keep {
						if err := autograd.Backward(y); err != nil {
							return err
						}
					}
					core.NoGrad(func() { err = op.AddInPlace(f.Tree().Units()[1].Tensors()[0], core.Num(1.0)).Err() })
					if err != nil {
						return err
					}
				}
				return f.Close()
			})
		}
	}
}
