package fsdp_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/stretchr/testify/require"
)

// TestModelLargerThanADevice trains a model whose parameters, gradients and AdamW state exceed the memory limit of one device.
// One device must fail. Four devices with FSDP, each with the same limit, must give the losses of one device without a limit.
func TestModelLargerThanADevice(t *testing.T) {
	const world, steps = 4, 4
	parameters := 4 * layers * (side*side + side)
	budget := 5 * parameters / 2 // training takes 4 times the parameters: gradients, and two moments
	adamW := func(m nn.Module) (*optim.Optimizer, error) {
		return optim.NewAdamW(nn.Parameters(m), optim.Hyper{"lr": 1e-3})
	}
	rows := func(s, from, to int) (x, y *core.Tensor) {
		x = op.Sin(op.Add(op.Reshape(op.Arange(nil, core.Num(float64(world*side)), nil, op.TensorOptions{}), world, side), core.Num(float64(s))))
		x = op.Narrow(x, 0, from, to-from)
		return x, op.Cos(x)
	}
	run := func(m nn.Module, forward func(x *core.Tensor) *core.Tensor, from, to int) (losses []float64, err error) {
		opt, err := adamW(m)
		if err != nil {
			return nil, err
		}
		defer opt.Release()
		for s := range steps {
			x, y := rows(s, from, to)
			l, err := step(forward, opt, x, y)
			if err != nil {
				return nil, err
			}
			losses = append(losses, l)
		}
		return losses, nil
	}
	on := func(name string, limit int, fn func() error) error {
		dev, err := core.OpenDevice(name)
		require.NoError(t, err)
		dev.(*cpu.Device).SetMemoryLimit(limit)
		ctx := core.NewRankContext(0, dev)
		defer ctx.Free()
		core.WithContext(ctx, func() { err = fn() })
		return err
	}
	var want []float64
	require.NoError(t, on("cpu:30", 0, func() (err error) {
		m := deep(0)
		want, err = run(m, m.Forward, 0, world)
		return err
	}))
	err := on("cpu:31", budget, func() error {
		m := deep(0)
		_, err := run(m, m.Forward, 0, world)
		return err
	})
	require.ErrorContains(t, err, "out of memory")

	devices := []string{"cpu:32", "cpu:33", "cpu:34", "cpu:35"}
	for _, name := range devices {
		dev, err := core.OpenDevice(name)
		require.NoError(t, err)
		dev.(*cpu.Device).SetMemoryLimit(budget)
	}
	err = collective.Spawn(world, devices, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
		var m *nn.Sequential
		if err := onMeta(func() error { m = deep(0); return nil }); err != nil {
			return err
		}
		f, err := fsdp.New(m, r.World, blocks, fsdp.Options{})
		if err != nil {
			return err
		}
		losses, err := run(m, f.Forward, r.Rank, r.Rank+1)
		if err != nil {
			return err
		}
		sum := core.FromSlice(losses)
		if err := r.World.AllReduce(sum, collective.Avg).Wait(); err != nil {
			return err
		}
		got, err := core.Values[float64](sum)
		if held := r.Device.Reserved(); held > budget {
			return fmt.Errorf("%v holds %d bytes, it may %d", r.Device, held, budget)
		}
		return errors.Join(err, near("losses", got, want, 1e-5), f.Close())
	})
	require.NoError(t, err)
}
