package dataparallel

import (
	"fmt"
	"runtime/debug"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
)

// Options configure a [DataParallel].
type Options struct {
	// OutputDevice is the device that outputs are gathered on. Empty means the first device.
	OutputDevice string
	// Dim is the dimension along which inputs are split and outputs concatenated.
	Dim int
	// Weights are the devices' relative shares of a batch. Nil means equal shares.
	Weights []float64
	// Measure sets the weights by [DataParallel.Measure] at the first forward pass.
	Measure bool
}

// A DataParallel runs a module on several devices at once. The module is its child "module", so the names of its tensors begin with
// "module.". Optimise the parameters of the module itself. Replicas are created for every pass, and changes in forward are lost, except
// those of the first device's buffers, which are the module's own.
type DataParallel struct {
	nn.Base
	Module nn.Module

	devices  []core.Device
	output   core.Device
	options  Options
	replicas *Replicas
	sizes    []int
}

// A Forward runs a replica on its slice of the inputs.
type Forward func(replica nn.Module, inputs []*core.Tensor) []*core.Tensor

// New wraps m for the given devices, such as "cpu:0" and "cpu:1". Its parameters and buffers must be on the first device. Forward passes
// check that again.
func New(m nn.Module, devices []string, o Options) (*DataParallel, error) {
	if err := nn.Err(m); err != nil {
		return nil, err
	}
	d := &DataParallel{Module: m, options: o}
	for _, name := range devices {
		dev, err := core.OpenDevice(name)
		if err != nil {
			return nil, err
		}
		d.devices = append(d.devices, dev)
	}
	if err := checkWeights(o.Weights, len(devices)); err != nil {
		return nil, err
	}
	var tensors []*core.Tensor
	var names []string
	seen := map[*core.Tensor]bool{}
	for _, n := range nn.NamedTensors(m) {
		if !seen[n.Tensor] {
			seen[n.Tensor] = true
			tensors, names = append(tensors, n.Tensor), append(names, n.Name)
		}
	}
	var err error
	if d.replicas, err = NewReplicas(tensors, names, d.devices); err != nil {
		return nil, err
	}
	d.output = d.devices[0]
	if o.OutputDevice != "" {
		if d.output, err = core.OpenDevice(o.OutputDevice); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Replicas returns the copies of the parameters.
func (d *DataParallel) Replicas() *Replicas { return d.replicas }

// Sizes returns the number of samples that each device had in the last pass.
func (d *DataParallel) Sizes() []int { return d.sizes }

// Weights returns the devices' relative shares of a batch; nil if they are equal.
func (d *DataParallel) Weights() []float64 { return d.options.Weights }

// SetWeights sets the devices' relative shares of a batch; nil makes them equal.
func (d *DataParallel) SetWeights(weights []float64) error {
	if err := checkWeights(weights, len(d.devices)); err != nil {
		return err
	}
	return d.replicas.Use(func() { d.options.Weights, d.options.Measure = weights, false })
}

// SetSyncMode sets when gradients are added to the module's: see [SyncMode].
func (d *DataParallel) SetSyncMode(m SyncMode) error { return d.replicas.SetSyncMode(m) }

// Forward runs the module, which must be a layer, on x and returns the concatenated output.
func (d *DataParallel) Forward(x *core.Tensor) *core.Tensor {
	if _, ok := d.Module.(nn.Layer); !ok {
		return core.ErrorTensor(core.Errorf(core.TypeError, "data_parallel", "%T is not a layer with one input and one output: use Run", d.Module))
	}
	out := d.Run(func(m nn.Module, in []*core.Tensor) []*core.Tensor {
		return []*core.Tensor{nn.Call(m.(nn.Layer), in[0])}
	}, x)
	return out[0]
}

// Run splits every input, calls forward with a replica on each device, and concatenates the outputs. If it fails, the output carries the
// error, which names the replica.
func (d *DataParallel) Run(forward Forward, inputs ...*core.Tensor) []*core.Tensor {
	if err := d.replicas.guard.Enter("data_parallel"); err != nil {
		return []*core.Tensor{core.ErrorTensor(err)}
	}
	defer d.replicas.guard.Leave()
	if d.options.Measure {
		if err := d.Measure(forward, inputs...); err != nil {
			return []*core.Tensor{core.ErrorTensor(err)}
		}
	}
	out, err := d.run(forward, inputs)
	if err != nil {
		return []*core.Tensor{core.ErrorTensor(err)}
	}
	return out
}

func (d *DataParallel) run(forward Forward, inputs []*core.Tensor) ([]*core.Tensor, error) {
	parts, sizes, err := Scatter(inputs, d.devices, d.options.Weights, d.options.Dim)
	if err != nil {
		return nil, err
	}
	d.sizes = sizes
	tensors, err := d.replicas.Replicate(len(parts))
	if err != nil {
		return nil, err
	}
	var outs [][]*core.Tensor
	for k := range parts {
		if parts[k] == nil {
			continue
		}
		out, err := d.apply(k, tensors[k], forward, parts[k])
		if err != nil {
			return nil, err
		}
		if len(outs) > 0 && len(out) != len(outs[0]) {
			return nil, core.Errorf(core.ValueError, "data_parallel", "replica %d gave %d outputs and an earlier one %d", k, len(out), len(outs[0]))
		}
		outs = append(outs, out)
	}
	joined := make([]*core.Tensor, len(outs[0]))
	for i := range joined {
		var list []*core.Tensor
		for _, out := range outs {
			list = append(list, out[i])
		}
		joined[i] = Gather(list, d.output, d.options.Dim)
		if err := joined[i].Err(); err != nil {
			return nil, err
		}
	}
	return joined, nil
}

// replica returns a copy of the module that uses the given tensors.
func (d *DataParallel) replica(tensors []*core.Tensor) nn.Module {
	to := map[*core.Tensor]*core.Tensor{}
	for i, t := range d.replicas.tensors {
		to[t] = tensors[i]
	}
	return nn.Replicate(d.Module, func(n nn.Named) *core.Tensor { return to[n.Tensor] })
}

// apply runs replica k on its device.
func (d *DataParallel) apply(k int, tensors []*core.Tensor, forward Forward, in []*core.Tensor) (out []*core.Tensor, err error) {
	fail := func(err error) error {
		kind, ok := core.KindOf(err)
		if !ok {
			kind = core.StateError
		}
		return core.Errorf(kind, "data_parallel", "replica %d on %v: %w", k, d.devices[k], err)
	}
	defer func() {
		if v := recover(); v != nil {
			err = fail(fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	here := core.CurrentContext()
	ctx := here.OnStreamsOf(here)
	defer ctx.Free()
	ctx.SetDefaultDevice(d.devices[k])
	core.WithContext(ctx, func() { out = forward(d.replica(tensors), in) })
	for _, t := range out {
		if err := t.Usable("forward"); err != nil {
			return nil, fail(err)
		}
	}
	if len(out) == 0 {
		return nil, fail(core.Errorf(core.ValueError, "forward", "got no outputs"))
	}
	return out, nil
}

// Release frees the replicas.
func (d *DataParallel) Release() { d.replicas.Release() }
