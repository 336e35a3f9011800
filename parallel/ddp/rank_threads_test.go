package ddp_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
)

// On each rank, one goroutine trains while another reads parameters, gradients and optimiser states.
func TestReadingDuringTraining(t *testing.T) {
	finals := make([][]float64, 3)
	spawn(t, 3, func(r *collective.Rank) error {
		p, err := ddp.New(mlp(), r.World, small)
		if err != nil {
			return err
		}
		o, err := optim.NewAdam(nn.Parameters(p), optim.Hyper{"lr": 0.01})
		if err != nil {
			return err
		}
		var stop atomic.Bool
		read := make(chan error, 1)
		ctx := core.CurrentContext()
		go func() {
			var err error
			for err == nil && !stop.Load() {
				core.WithContext(ctx, func() { err = readAll(p, o) })
			}
			read <- err
		}()
		for s := range 60 {
			x, y := batch(s, r.Rank*4, r.Rank*4+4)
			if _, err = step(p, o, x, y); err != nil {
				break
			}
		}
		stop.Store(true)
		err = errors.Join(err, <-read)
		if err == nil {
			finals[r.Rank], err = values(p)
		}
		return errors.Join(err, p.Close())
	})
	for _, f := range finals[1:] {
		if err := equal("parameters", f, finals[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads everything that a checkpoint saves. It clones each tensor first, since training may change it during the read.
func readAll(m nn.Module, o *optim.Optimizer) error {
	read := func(x *core.Tensor) (err error) {
		core.NoGrad(func() {
			core.Tidy(func() { _, err = op.Clone(x).Bytes() })
		})
		return err
	}
	for _, p := range nn.Parameters(m) {
		g, lender := p.BorrowGrad()
		err := read(p)
		if g != nil && err == nil {
			err = read(g)
		}
		lender.ReturnGrad()
		if err != nil {
			return err
		}
	}
	for _, s := range o.StateDict().Params {
		for name, x := range s.Tensors {
			if err := read(x); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
