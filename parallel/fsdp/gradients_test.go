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
	"github.com/stretchr/testify/require"
)

// Case 31: gradients of several passes add up, sent each time or only the last, as those of one large batch.
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
			v, err := core.Values[float64](p.Grad())
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
							return errors.New("a pass without synchronisation sent gradients")
						}
					} else if err := pass(); err != nil {
						return err
					}
				}
				got, err := fullGrads(f)
				return errors.Join(err, near("gradients", got, want, 1e-9), f.Close())
			})
		}
	}
}

// fullGrads returns the gradients of all parameters of the model in full.
func fullGrads(f *fsdp.FullyShardedDataParallel) ([]float64, error) {
	byName := map[string][]float64{}
	for _, u := range f.Tree().Units() {
		for _, l := range u.Layout() {
			full, err := u.Assemble(l.Name, u.Shard(l.Name).Grad())
			if err != nil {
				return nil, err
			}
			v, err := core.Values[float64](full)
			if err != nil {
				return nil, err
			}
			byName[l.Name] = v
		}
	}
	var all []float64
	for _, n := range nn.NamedParameters(f.Module) {
		all = append(all, byName[n.Name]...)
	}
	return all, nil
}

// Case 32: the norm of the divided gradients is that of the whole ones, and clipping scales by it.
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
				v, err := core.Values[float64](p.Grad())
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
			grads, err := fullGrads(f)
			return errors.Join(err, near("norm", []float64{got}, []float64{want}, 1e-9), near("clipped", grads, clipped, 1e-9), f.Close())
		})
	}
}

// A parameter that no rank uses keeps no gradient; one that some rank uses has the average everywhere.
func TestUnusedParameters(t *testing.T) {
	spawn(t, 3, func(r *collective.Rank) error {
		a, b, c := nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{}), nn.NewLinear(width, 2, nn.LinearOptions{})
		m := nn.NewSequential(a, b, c)
		f, err := fsdp.New(m, r.World, nil, fsdp.Options{})
		if err != nil {
			return err
		}
		x, y := batch(0, 0, 2)
		out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
			z := nn.Call(a, in[0])
			if r.Rank == 1 {
				z = op.Add(z, nn.Call(b, in[0]))
			}
			return []*core.Tensor{mse(z, in[1])}
		}, x, y)
		if err != nil {
			return err
		}
		if err := autograd.Backward(out[0]); err != nil {
			return err
		}
		for i, l := range []*nn.Linear{a, b, c} {
			if has := l.Weight.Grad() != nil; has != (i < 2) {
				return fmt.Errorf("layer %d has a gradient: %v", i, has)
			}
		}
		return f.Close()
	})
}
