package fsdp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// TestBadInput checks that misuse gives an error on every rank that says what to do.
func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		do   func(r *collective.Rank) error
		want string
	}{
		{func(r *collective.Rank) error { // a parameter created after the module was sharded
			m := model()
			f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			m.RegisterParameter("late", op.Ones(2).Keep().SetRequiresGrad(true))
			x, _ := batch(0, 0, 1)
			return f.Forward(x).Err()
		}, "parameter late was created after the module was sharded"},
		{func(r *collective.Rank) error { // an optimiser created before the module was sharded
			m := model()
			opt, err := optimisers["sgd"](nn.Parameters(m))
			if err != nil {
				return err
			}
			f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			x, y := batch(0, 0, 1)
			_, err = step(f.Forward, opt, x, y)
			return err
		}, "make the optimiser after the model is fully sharded"},
		{func(r *collective.Rank) error { // ranks with different models
			sizes := []int{4, 4, 5}
			_, err := fsdp.New(nn.NewSequential(nn.NewLinear(3, sizes[r.Rank], nn.LinearOptions{})), r.World, nil, fsdp.Options{})
			return err
		}, `"0.weight", float64[4 3] on ranks [0 1], "0.weight", float64[5 3] on rank 2`},
		{func(r *collective.Rank) error { // ranks with different options
			_, err := fsdp.New(model(), r.World, nil, fsdp.Options{KeepAfterForward: r.Rank == 1})
			return err
		}, "how the unit is sharded"},
		{func(r *collective.Rank) error { // a module sharded twice
			m := model()
			if _, err := fsdp.New(m, r.World, nil, fsdp.Options{}); err != nil {
				return err
			}
			_, err := fsdp.New(m, r.World, nil, fsdp.Options{})
			return err
		}, "is sharded over ranks already"},
		{func(r *collective.Rank) error { // a state dict with a wrong shape
			f, err := fsdp.New(model(), r.World, nil, fsdp.Options{})
			if err != nil {
				return err
			}
			_, err = f.Load(map[string]*core.Tensor{"3.bias": op.Ones(3), "x": op.Ones(1)}, true)
			return err
		}, "3.bias (got [3], want [2])"},
		{func(r *collective.Rank) error { // a state dict with a missing and an unexpected key
			f, err := fsdp.New(model(), r.World, nil, fsdp.Options{})
			if err != nil {
				return err
			}
			_, err = f.Load(map[string]*core.Tensor{"tail": op.Ones(1)}, true)
			if e := contains(err, "missing: 0.0.weight"); e != nil {
				return e
			}
			return err
		}, "unexpected: tail"},
		{func(r *collective.Rank) error { // a method of the module that is not a forward pass
			m := model()
			if _, err := fsdp.New(m, r.World, blocks, fsdp.Options{}); err != nil {
				return err
			}
			x, _ := batch(0, 0, 1)
			return m.Layers[3].Forward(nn.Call(m.Layers[2], nn.Call(m.Layers[1], nn.Call(m.Layers[0], x)))).Err()
		}, `parameter 3.weight is sharded over ranks and is not gathered now: call the module`},
		{func(r *collective.Rank) error {
			_, err := fsdp.New(model(), r.World, nil, fsdp.Options{Partial: 2})
			return err
		}, "must divide the 3 ranks"},
	} {
		require.NoError(t, trySpawn(3, func(r *collective.Rank) error {
			if err := c.do(r); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("got %v, want %s", err, c.want)
			}
			return r.World.Barrier()
		}))
	}
}

// broken is a layer whose backward fails on demand.
type broken struct {
	nn.Base
	fails bool
}

func (b *broken) Forward(x *core.Tensor) *core.Tensor {
	y := op.Mul(x, core.Num(1.0))
	y.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
		if b.fails {
			return core.ErrorTensor(errors.New("out of luck"))
		}
		return nil
	}})
	return y
}

// TestBackwardFails makes one backward pass fail. The next step's gradients must not be affected.
func TestBackwardFails(t *testing.T) {
	for _, o := range []fsdp.Options{{}, {KeepAfterForward: true}} {
		spawn(t, 2, func(r *collective.Rank) error {
			b := &broken{}
			m := nn.NewSequential(nn.NewSequential(nn.NewLinear(width, 4, nn.LinearOptions{}), b, nn.NewLinear(4, 2, nn.LinearOptions{})))
			f, err := fsdp.New(m, r.World, blocks, o)
			if err != nil {
				return err
			}
			x, y := batch(0, r.Rank, r.Rank+1)
			var grads [2][]float64
			for i := range grads {
				if b.fails = i == 1; b.fails {
					if err := contains(autograd.Backward(mse(f.Forward(x), y)), "out of luck"); err != nil {
						return err
					}
					b.fails = false
				}
				nn.ZeroGrad(m)
				if err := autograd.Backward(mse(f.Forward(x), y)); err != nil {
					return err
				}
				if grads[i], err = fullGradients(f); err != nil {
					return err
				}
			}
			return errors.Join(equal("gradients after a failure", grads[1], grads[0]), f.Close())
		})
	}
}
