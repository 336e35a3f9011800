package dataparallel

import (
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// measuredPasses is the number of passes per device in a [Measurement]. The best time counts, since the first pass compiles and allocates.
const measuredPasses = 3

// A Measurement measures the speed of each device of [Replicas], one after the other, with equal slices of a batch. It leaves parameters,
// buffers and random generators unchanged.
type Measurement struct {
	replicas   *Replicas
	inputs     []*core.Tensor
	dim        int
	generators [][2]uint64 // states before the measurement

	passes  int // passes started
	tensors []*core.Tensor
	parts   []*core.Tensor
	start   time.Time
	best    []time.Duration
}

// Measure starts a measurement with the inputs of a forward pass. End it with [Measurement.Release].
func (r *Replicas) Measure(inputs []*core.Tensor, dim int) (*Measurement, error) {
	if _, _, err := Scatter(inputs, r.devices[:1], nil, dim); err != nil {
		return nil, err
	}
	m := &Measurement{replicas: r, inputs: inputs, dim: dim, best: make([]time.Duration, len(r.devices))}
	for _, d := range r.devices {
		seed, offset := core.CurrentContext().Generator(d).State()
		m.generators = append(m.generators, [2]uint64{seed, offset})
	}
	return m, nil
}

// Next ends a pass and starts the next. It returns the index of the device to run on, the replica's tensors and its slices of the inputs;
// the measurement owns both. The index is -1 after the last pass. Next waits for the device. Call it without recording gradients.
func (m *Measurement) Next() (device int, tensors, parts []*core.Tensor, err error) {
	if err := m.replicas.guard.Enter("measure"); err != nil {
		return 0, nil, nil, err
	}
	defer m.replicas.guard.Leave()
	if m.passes > 0 {
		last := (m.passes - 1) / measuredPasses
		if err := m.replicas.devices[last].Synchronize(); err != nil {
			return 0, nil, nil, err
		}
		if took := max(time.Since(m.start), 1); m.best[last] == 0 || took < m.best[last] {
			m.best[last] = took
		}
	}
	device = m.passes / measuredPasses
	if device == len(m.best) {
		return -1, nil, nil, nil
	}
	if m.passes%measuredPasses == 0 {
		if err := m.prepare(device); err != nil {
			return 0, nil, nil, err
		}
	}
	m.passes++
	if err := m.replicas.devices[device].Synchronize(); err != nil {
		return 0, nil, nil, err
	}
	m.start = time.Now()
	return device, m.tensors, m.parts, nil
}

// prepare copies the tensors and inputs to a device.
func (m *Measurement) prepare(device int) (err error) {
	m.drop()
	dev := m.replicas.devices[device]
	keep := func(list *[]*core.Tensor, t *core.Tensor) error {
		*list = append(*list, t.Keep())
		return t.Err()
	}
	core.NoGrad(func() {
		core.Tidy(func() {
			for _, t := range m.replicas.tensors {
				c := collective.ToDevice(t, dev)
				if !t.RequiresGrad() {
					c = op.Clone(c) // forward may change a buffer
				}
				if err = keep(&m.tensors, c); err != nil {
					return
				}
			}
			for _, x := range m.inputs {
				if x.Dim() > 0 {
					dim, _ := core.WrapDim("measure", m.dim, x.Dim())
					n := x.Size(dim)
					x = op.Narrow(x, dim, 0, max(n/len(m.best), min(n, 1)))
				}
				if err = keep(&m.parts, collective.ToDevice(x, dev)); err != nil {
					return
				}
			}
		})
	})
	return err
}

// Weights returns the devices' relative speeds, with a sum of 1. Call it after the last pass.
func (m *Measurement) Weights() []float64 {
	weights := make([]float64, len(m.best))
	total := 0.0
	for k, took := range m.best {
		if took > 0 {
			weights[k] = 1 / took.Seconds()
		}
		total += weights[k]
	}
	for k := range weights {
		weights[k] /= total
	}
	return weights
}

// Release ends the measurement, also in the middle.
func (m *Measurement) Release() {
	m.drop()
	for k, s := range m.generators {
		core.CurrentContext().Generator(m.replicas.devices[k]).SetState(s[0], s[1])
	}
	m.generators = nil
}

func (m *Measurement) drop() {
	for _, list := range [][]*core.Tensor{m.tensors, m.parts} {
		for _, t := range list {
			t.Release()
		}
	}
	m.tensors, m.parts = nil, nil
}

// Measure sets the weights in proportion to the devices' speeds: see [Measurement].
func (d *DataParallel) Measure(forward Forward, inputs ...*core.Tensor) error {
	d.options.Measure = false
	m, err := d.replicas.Measure(inputs, d.options.Dim)
	if err != nil {
		return err
	}
	defer m.Release()
	core.NoGrad(func() {
		for err == nil {
			var k int
			var tensors, parts []*core.Tensor
			if k, tensors, parts, err = m.Next(); err != nil || k < 0 {
				return
			}
			core.Tidy(func() { _, err = d.apply(k, tensors, forward, parts) })
		}
	})
	if err == nil {
		d.options.Weights = m.Weights()
	}
	return err
}
