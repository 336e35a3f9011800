package fsdp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// What cannot work is an error, the same kind on every rank, that says what to do.
func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		do   func(r *collective.Rank) error
		want string
	}{
		{func(r *collective.Rank) error { // a parameter created after the module was divided
			m := model()
			f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
			if err != nil {
				return err
			}
			m.RegisterParameter("late", op.Ones(2).Keep().SetRequiresGrad(true))
			x, _ := batch(0, 0, 1)
			return f.Forward(x).Err()
		}, "parameter late was created after the module was divided"},
		{func(r *collective.Rank) error { // an optimiser made before
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
		{func(r *collective.Rank) error { // ranks with other models
			sizes := []int{4, 4, 5}
			_, err := fsdp.New(nn.NewSequential(nn.NewLinear(3, sizes[r.Rank], nn.LinearOptions{})), r.World, nil, fsdp.Options{})
			return err
		}, `"0.weight", float64[4 3] on ranks [0 1], "0.weight", float64[5 3] on ranks [2]`},
		{func(r *collective.Rank) error { // ranks with other options
			_, err := fsdp.New(model(), r.World, nil, fsdp.Options{KeepAfterForward: r.Rank == 1})
			return err
		}, "how the unit is divided"},
		{func(r *collective.Rank) error { // a module divided twice
			m := model()
			if _, err := fsdp.New(m, r.World, nil, fsdp.Options{}); err != nil {
				return err
			}
			_, err := fsdp.New(m, r.World, nil, fsdp.Options{})
			return err
		}, "is divided over ranks already"},
		{func(r *collective.Rank) error { // a state of another shape
			f, err := fsdp.New(model(), r.World, nil, fsdp.Options{})
			if err != nil {
				return err
			}
			_, err = f.Load(map[string]*core.Tensor{"3.bias": op.Ones(3), "x": op.Ones(1)}, true)
			return err
		}, "3.bias (got [3], want [2])"},
		{func(r *collective.Rank) error { // a state without an entry, and with one of its own
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
		}, `parameter 3.weight is divided over ranks and is not gathered now: call the module`},
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
