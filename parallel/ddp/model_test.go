package ddp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// If the ranks' models differ, all ranks get an error with the first difference.
func TestCase25DifferentModels(t *testing.T) {
	for _, c := range []struct {
		make func(rank int) nn.Module
		o    func(rank int) ddp.Options
		want string
	}{
		{func(rank int) nn.Module {
			return nn.NewSequential(nn.NewLinear(3, 4, nn.LinearOptions{}), nn.NewLinear(4, 2+rank/2, nn.LinearOptions{}))
		}, nil, `parameter 2, "1.weight", is float64[2 4] on ranks [0 1], float64[3 4] on rank 2`},
		{func(rank int) nn.Module {
			l := []nn.Layer{nn.NewLinear(3, 3, nn.LinearOptions{})}
			if rank == 1 {
				l = append(l, nn.NewLinear(3, 3, nn.LinearOptions{}))
			}
			return nn.NewSequential(l...)
		}, nil, `2 parameters on ranks [0 2], 4 parameters on rank 1; the first that some lack is "1.weight"`},
		{func(rank int) nn.Module {
			if rank == 1 {
				core.CurrentContext().SetDefaultDType(core.Float32)
			}
			return nn.NewLinear(3, 3, nn.LinearOptions{})
		}, nil, `parameter 0, "weight", is float64[3 3] on ranks [0 2], float32[3 3] on rank 1`},
		{func(rank int) nn.Module {
			l := nn.NewLinear(3, 3, nn.LinearOptions{})
			l.Bias.SetRequiresGrad(rank != 2)
			return l
		}, nil, `"bias", is float64[3] on ranks [0 1], float64[3] without a gradient on rank 2`},
		{func(rank int) nn.Module {
			l := nn.NewLinear(3, 3, nn.LinearOptions{})
			nn.SetRequiresGrad(l, rank != 1)
			return l
		}, nil, `none of the 2 parameters requires a gradient`},
		{func(rank int) nn.Module { return nn.NewLinear(3, 3, nn.LinearOptions{}) },
			func(rank int) ddp.Options { return ddp.Options{FindUnused: rank == 0} }, "the ranks' options differ"},
	} {
		err := trySpawn(3, func(r *collective.Rank) error {
			o := ddp.Options{}
			if c.o != nil {
				o = c.o(r.Rank)
			}
			if _, err := ddp.New(c.make(r.Rank), r.World, o); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want %s", err, c.want)
			}
			return nil
		})
		require.NoError(t, err)
	}
	_, err := ddp.New(nn.NewLinear(1, 1, nn.LinearOptions{}), nil, ddp.Options{})
	require.ErrorContains(t, err, "no group")
}

// State dicts with and without the prefix load into the wrapped and the plain module.
func TestCase27StateDicts(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := mlp()
		p, err := ddp.New(m, r.World, ddp.Options{})
		if err != nil {
			return err
		}
		state := nn.StateDict(p)
		for name := range state {
			if !strings.HasPrefix(name, ddp.Prefix) {
				return fmt.Errorf("%q has no prefix", name)
			}
		}
		other := mlp()
		if _, err := nn.LoadStateDict(other, ddp.WithoutPrefix(state), true); err != nil {
			return err
		}
		for _, p := range nn.Parameters(other) {
			op.AddInPlace(p.Detach(), core.Num(float64(1)))
		}
		want, err := values(other)
		if err != nil {
			return err
		}
		for _, state := range []map[string]*core.Tensor{nn.StateDict(other), state} {
			if _, err := p.Load(state, true); err != nil {
				return err
			}
			if _, err := p.Load(map[string]*core.Tensor{"module.x": core.Scalar(1.0)}, true); err == nil {
				return errors.New("an unknown name was loaded")
			}
		}
		if _, err := p.Load(nn.StateDict(other), true); err != nil {
			return err
		}
		got, err := values(p)
		if err != nil {
			return err
		}
		// The module trains on after Close, without DDP.
		if err := errors.Join(equal("loaded", got, want), p.Close()); err != nil {
			return err
		}
		o, err := optim.NewSGD(nn.Parameters(m), optim.Hyper{"lr": 0.1})
		if err != nil {
			return err
		}
		x, y := batch(r.Rank, 0, 4)
		before := r.World.Stats().Total()
		if _, err := step(m, o, x, y); err != nil {
			return err
		}
		if r.World.Stats().Total() != before {
			return errors.New("a closed reducer sent something")
		}
		return nil
	})
}
