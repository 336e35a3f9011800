package fsdp_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// onMeta runs fn with the meta device as the default.
func onMeta(fn func() error) error {
	dev, err := core.OpenDevice("meta")
	if err != nil {
		return err
	}
	core.WithDevice(dev, func() { err = fn() })
	return err
}

// TestMetaParity checks that a model created on the meta device gets values that are bitwise equal to those of a model created
// with values, also in buffers and ignored parameters, and trains like it.
func TestMetaParity(t *testing.T) {
	for _, world := range []int{1, 3} {
		for _, o := range []fsdp.Options{{}, {Broadcast: true}, {KeepAfterForward: true}} {
			spawn(t, world, func(r *collective.Rank) error {
				plain := newTied()
				f, err := fsdp.New(plain, r.World, blocks, o, plain.Norm)
				if err != nil {
					return err
				}
				want, err := fullParams(f)
				if err != nil {
					return err
				}
				var m *tied
				if err := onMeta(func() error { m = newTied(); return nil }); err != nil {
					return err
				}
				g, err := fsdp.New(m, r.World, blocks, o, m.Norm)
				if err != nil {
					return err
				}
				got, err := fullParams(g)
				if err := errors.Join(err, equal("parameters", got, want)); err != nil {
					return fmt.Errorf("%+v on %d ranks: %w", o, world, err)
				}
				for _, n := range nn.NamedTensors(m) {
					if d := n.Tensor.Device(); d != r.Device {
						return fmt.Errorf("%s is on %v", n.Name, d)
					}
				}
				for step := range 2 {
					x, y := batch(step, r.Rank*2, r.Rank*2+2)
					a, errA := mse(f.Forward(x), y).Item()
					b, errB := mse(g.Forward(x), y).Item()
					if err := errors.Join(errA, errB, equal("loss", []float64{b}, []float64{a})); err != nil {
						return err
					}
				}
				return errors.Join(f.Close(), g.Close())
			})
		}
	}
}

// TestMetaBroadcast gives ranks different seeds. With [fsdp.Options.Broadcast] all must start with the values of rank 0.
func TestMetaBroadcast(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		var first, mine *nn.Linear
		core.ManualSeed(100)
		first = nn.NewLinear(5, 4, nn.LinearOptions{})
		want, err := values(nn.Parameters(first))
		if err != nil {
			return err
		}
		core.ManualSeed(100 + uint64(r.Rank))
		if err := onMeta(func() error { mine = nn.NewLinear(5, 4, nn.LinearOptions{}); return nil }); err != nil {
			return err
		}
		f, err := fsdp.New(mine, r.World, nil, fsdp.Options{Broadcast: true})
		if err != nil {
			return err
		}
		got, err := fullParams(f)
		return errors.Join(err, equal("parameters", got, want), f.Close())
	})
}

// TestMetaMemory checks that no device ever has more than its shards, plus what rounding one shard up to whole random draws
// takes.
func TestMetaMemory(t *testing.T) {
	const world = 4
	devices := []string{"cpu:20", "cpu:21", "cpu:22", "cpu:23"} // no other test uses them
	part := 4 * layers * (side*side + side) / world
	err := collective.Spawn(world, devices, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
		core.ResetPeak(r.Device)
		usage := func() core.Usage { return core.RankUsage(r.Device, r.Rank) }
		var m *nn.Sequential
		if err := onMeta(func() error { m = deep(0); return nil }); err != nil {
			return err
		}
		if p := usage().Peak; p != 0 {
			return fmt.Errorf("%d bytes for a model without values", p)
		}
		f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		one := 4 * side * side / world
		if p := usage().Peak; p > part+one+64*2*layers {
			return fmt.Errorf("a peak of %d bytes, the shards have %d", p, part)
		}
		for _, p := range nn.Parameters(m) {
			if p.Parts().Local().Size(0) != side/world || !p.RequiresGrad() {
				return fmt.Errorf("got a parameter of shape %v", p.Shape())
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
		for _, p := range nn.Parameters(m) {
			p.Release()
		}
		if n := usage().Current; n != 0 {
			return fmt.Errorf("%d bytes are left", n)
		}
		return nil
	})
	require.NoError(t, err)
}

// TestMetaUnknownValues checks that values that cannot be created from the meta device give an error on every rank that names the
// parameter.
func TestMetaUnknownValues(t *testing.T) {
	require.NoError(t, trySpawn(2, func(r *collective.Rank) error {
		m := nn.NewLinear(600, 600, nn.LinearOptions{})
		dev, err := core.OpenDevice("meta")
		if err != nil {
			return err
		}
		moved := op.ToDevice(m.Weight.Detach(), dev)
		moved.SetRequiresGrad(true)
		m.Weight = moved
		_, err = fsdp.New(m, r.World, nil, fsdp.Options{})
		if err == nil {
			return errors.New("values from nowhere")
		}
		want := "parameter Weight: materialize: to on the meta device cannot be repeated: its values lay on another device"
		if n := nn.NamedParameters(m)[0].Name; n != "Weight" {
			want = "parameter " + n + want[len("parameter Weight"):]
		}
		return contains(err, want)
	}))
}
