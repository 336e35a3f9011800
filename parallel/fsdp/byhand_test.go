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

// Case 35: parameters are gathered and freed by hand, and another method than the module's own forward runs as a pass.
func TestCase35ByHand(t *testing.T) {
	var want []float64
	in64(t, func() {
		var err error
		want, err = values(nn.Parameters(model()))
		require.NoError(t, err)
	})
	spawn(t, 3, func(r *collective.Rank) error {
		m := model()
		f, err := fsdp.New(m, r.World, nil, fsdp.Options{})
		if err != nil {
			return err
		}
		u := f.Tree().Units()[0]
		if err := u.StartUnshard(); err != nil {
			return err
		}
		if u.Gathered() {
			return errors.New("a gather that was only begun has changed the module")
		}
		if err := u.Unshard(); err != nil {
			return err
		}
		got, err := values(nn.Parameters(m))
		if err := errors.Join(err, equal("gathered", got, want)); err != nil {
			return err
		}
		u.Reshard()
		shards, err := values(nn.Parameters(m))
		if err != nil {
			return err
		}
		if len(shards) >= len(want) {
			return fmt.Errorf("%d of %d values are left", len(shards), len(want))
		}
		x, y := batch(0, 0, 2)
		// The module's parts, used past it, say what is wrong.
		if err := m.Forward(x).Err(); err == nil || !strings.Contains(err.Error(), "is divided over ranks and is not gathered now") {
			return fmt.Errorf("got %v", err)
		}
		out, err := f.Run(func(in []*core.Tensor) []*core.Tensor {
			return []*core.Tensor{mse(m.Forward(in[0]), in[1])}
		}, x, y)
		if err != nil {
			return err
		}
		if err := autograd.Backward(out[0]); err != nil {
			return err
		}
		// Changes of whole parameters go back to the shards.
		err = f.Summon(fsdp.SummonOptions{}, func() error {
			var err error
			core.NoGrad(func() {
				for _, p := range nn.Parameters(m) {
					err = errors.Join(err, op.MulInPlace(p, core.Num(2)).Err())
				}
			})
			return err
		})
		if err != nil {
			return err
		}
		twice, err := gathered(f)
		for i := range want {
			if twice[i] != 2*want[i] {
				return fmt.Errorf("value %d is %v, want %v", i, twice[i], 2*want[i])
			}
		}
		return errors.Join(err, f.Close())
	})
}
