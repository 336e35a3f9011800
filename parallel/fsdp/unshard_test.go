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

// TestCase35ManualUnshard checks Unshard and Reshard, and a forward pass through a method other than Forward.
func TestCase35ManualUnshard(t *testing.T) {
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
			return errors.New("StartUnshard has changed the module")
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
		// A forward pass past f is an error.
		if err := m.Forward(x).Err(); err == nil || !strings.Contains(err.Error(), "is sharded over ranks and is not gathered now") {
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
		// Changes of full parameters are written to the shards.
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
		twice, err := fullParams(f)
		for i := range want {
			if twice[i] != 2*want[i] {
				return fmt.Errorf("value %d is %v, want %v", i, twice[i], 2*want[i])
			}
		}
		return errors.Join(err, f.Close())
	})
}

// TestPrefetches checks that each of the three units in the root is prefetched: in forward in the order of the last forward pass,
// in backward in the reverse order.
func TestPrefetches(t *testing.T) {
	for _, c := range []struct {
		o           fsdp.Options
		first, then int // prefetches in the first step, which does not know the forward order, and in each later step
	}{
		{fsdp.Options{}, 3, 6}, {fsdp.Options{BackwardPrefetch: fsdp.PrefetchAfter}, 3, 6}, {fsdp.Options{Slots: 1}, 3, 6},
		{fsdp.Options{NoForwardPrefetch: true}, 3, 3}, {fsdp.Options{BackwardPrefetch: fsdp.PrefetchNever}, 0, 3},
		{fsdp.Options{NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever}, 0, 0},
	} {
		spawn(t, 2, func(r *collective.Rank) error {
			m := model()
			f, err := fsdp.New(m, r.World, blocks, c.o)
			if err != nil {
				return err
			}
			opt, err := optimisers["sgd"](nn.Parameters(m))
			if err != nil {
				return err
			}
			for s := range 3 {
				x, y := batch(s, r.Rank*2, (r.Rank+1)*2)
				if _, err := step(f.Forward, opt, x, y); err != nil {
					return err
				}
				got := 0
				for _, u := range f.Tree().Units() {
					got += u.Stats().Prefetches
				}
				if want := c.first + s*c.then; got != want {
					return fmt.Errorf("%+v, step %d: %d prefetches so far, want %d", c.o, s, got, want)
				}
			}
			return f.Close()
		})
	}
}
