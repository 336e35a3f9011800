package fsdp_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/internal/ranktest"
)

// TestOutOfMemoryOnARank makes each allocation of one rank fail in turn. The rank must report it, and the other ranks must not
// wait for it.
func TestOutOfMemoryOnARank(t *testing.T) {
	ranktest.OutOfMemory(t, 2, 1, func(r *collective.Rank) error {
		f, err := fsdp.New(model(), r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		o, err := optimisers["adam"](nn.Parameters(f.Module))
		if err != nil {
			return err
		}
		x, y := batch(0, r.Rank*2, r.Rank*2+2)
		if _, err = step(f.Forward, o, x, y); err != nil {
			return err
		}
		return f.Close()
	})
}

// TestOutOfMemoryInAStep makes each allocation of a step fail in turn. Parameters must be unchanged, and the step can be
// repeated.
func TestOutOfMemoryInAStep(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		f, err := fsdp.New(model(), r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		o, err := optimisers["adam"](nn.Parameters(f.Module))
		if err != nil {
			return err
		}
		x, y := batch(0, 0, 2)
		before, err := fullParams(f)
		if err != nil {
			return err
		}
		coretest.Settle(t, r.Device)
		used := core.RankUsage(r.Device, 0).Current
		coretest.EachAllocation(t, func() error {
			_, err := step(f.Forward, o, x, y)
			return err
		}, func() {
			_ = r.Device.Synchronize()
			o.ZeroGrad()
			after, err := fullParams(f)
			if err == nil {
				err = equal("parameters", after, before)
			}
			if err != nil {
				t.Fatal(err)
			}
			if now := core.RankUsage(r.Device, 0).Current; now > used {
				t.Fatalf("%d bytes are in use, before there were %d", now, used)
			}
		}, 0)
		return f.Close()
	})
}
