package main

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/dataparallel"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// A way is a way of training on several devices.
type way struct {
	name    string
	options ddp.Options
	hook    ddp.Hook
	divided *fsdp.Options // in the place of DDP
	root    bool          // the root unit's parameters are kept after forward, as fully_shard does unless told otherwise
}

// training measures steps on one device and on all, each with a batch of its own.
func (b *bench) training() error {
	b.table(fmt.Sprintf("%s, %d x %d tokens a device, AdamW", b.model.Name, b.model.Batch, b.model.Context), "ms a step", "times one device", "MiB a step between host and device")
	var alone float64
	err := collective.Spawn(1, b.devices[:1], collective.Options{}, func(r *collective.Rank) (err error) {
		alone, _, err = b.train(r, nil)
		return err
	})
	if err != nil {
		return err
	}
	b.row("one device", alone*1e3, 1.0, 0)
	n := float64(len(b.devices))
	for _, w := range []way{
		{name: "DDP"},
		{name: "DDP, reduced after backward", options: ddp.Options{DelayAllReduce: true}},
		{name: "DDP, gradients packed to bfloat16", options: ddp.Options{BucketView: true}, hook: ddp.CompressHook(core.BFloat16, nil)},
		{name: "DDP that sends nothing", hook: ddp.NoopHook},
		{name: "FSDP", divided: &fsdp.Options{}},
		{name: "FSDP, the root's parameters kept after forward", divided: &fsdp.Options{}, root: true},
		{name: "FSDP, parameters kept after forward", divided: &fsdp.Options{KeepAfterForward: true}},
		{name: "FSDP without prefetching", divided: &fsdp.Options{NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever}},
	} {
		var seconds float64
		var staged int
		err := b.spawn(func(r *collective.Rank) error {
			s, bytes, err := b.train(r, &w)
			if r.Rank == 0 {
				seconds, staged = s, bytes
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		b.row(w.name, seconds*1e3, n*alone/seconds, staged>>20)
	}
	seconds, err := b.dataParallel()
	if err != nil {
		return err
	}
	b.row("DataParallel", seconds*1e3, n*alone/seconds, "")
	return nil
}

// train returns the seconds of a step of a rank, and the bytes that it moved between host and device. Without a way there is
// nobody else.
func (b *bench) train(r *collective.Rank, w *way) (seconds float64, staged int, err error) {
	g, err := newReplica(b.model, r.Rank, r.Device)
	if err != nil {
		return 0, 0, err
	}
	var reducer *ddp.Reducer
	if w != nil && w.divided != nil {
		if err := g.divide(r.World, *w.divided, w.root); err != nil {
			return 0, 0, err
		}
		defer func() {
			for _, u := range g.units {
				u.Release()
			}
		}()
	} else if w != nil {
		if reducer, err = ddp.NewReducer(r.World, g.named(), w.options); err != nil {
			return 0, 0, err
		}
		defer reducer.Close()
		if w.hook != nil {
			if err := reducer.RegisterHook(w.hook); err != nil {
				return 0, 0, err
			}
		}
	}
	optimizer, err := optim.NewAdamW(g.Tensors(), optim.Hyper{"lr": 1e-4})
	if err != nil {
		return 0, 0, err
	}
	before := 0
	seconds, err = best(b.steps, func() (err error) {
		before = r.World.Stats().Staged
		core.Tidy(func() {
			if reducer != nil {
				if err = reducer.Forward(b.model.Batch); err != nil {
					return
				}
			}
			loss := g.Loss(g.Tensors(), g.tokens, g.targets)
			if err = autograd.Backward(loss); err != nil {
				return
			}
			if err = optimizer.Step(); err != nil {
				return
			}
			optimizer.ZeroGrad()
			if _, err = loss.Item(); err == nil {
				err = core.CurrentContext().Stream(r.Device).Synchronize()
			}
		})
		return err
	})
	return seconds, r.World.Stats().Staged - before, err
}

// dataParallel returns the seconds of a step of DataParallel.
func (b *bench) dataParallel() (float64, error) {
	var devices []core.Device
	for _, name := range b.devices {
		d, err := core.OpenDevice(name)
		if err != nil {
			return 0, err
		}
		devices = append(devices, d)
	}
	n := len(devices)
	models := make([]*replica, n)
	var err error
	for i, d := range devices {
		if models[i], err = newReplica(b.model, i, d); err != nil {
			return 0, err
		}
	}
	g := models[0]
	replicas, err := dataparallel.NewReplicas(g.Tensors(), nil, devices)
	if err != nil {
		return 0, err
	}
	defer replicas.Release()
	optimizer, err := optim.NewAdamW(g.Tensors(), optim.Hyper{"lr": 1e-4})
	if err != nil {
		return 0, err
	}
	return best(b.steps, func() (err error) {
		core.Tidy(func() {
			var copies [][]*core.Tensor
			if copies, err = replicas.Replicate(n); err != nil {
				return
			}
			var losses []*core.Tensor
			for i, m := range models {
				losses = append(losses, g.Loss(copies[i], m.tokens, m.targets))
			}
			loss := op.Mean(dataparallel.Gather(losses, devices[0], 0), nil, false)
			if err = autograd.Backward(loss); err != nil {
				return
			}
			if err = optimizer.Step(); err != nil {
				return
			}
			optimizer.ZeroGrad()
			if _, err = loss.Item(); err == nil {
				err = core.Synchronize()
			}
		})
		return err
	})
}
