package dataparallel

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// BucketBytes is the size of gradients that are summed together while backward goes on.
const BucketBytes = 25 << 20

// Replicas copies tensors from the first of some devices to the others, and sums the gradients of the copies into those of
// the originals.
type Replicas struct {
	guard   core.Guard
	devices []core.Device
	tensors []*core.Tensor
	names   []string
	buckets [][]int // of tensors, by number

	copies [][]copied     // by device and tensor, but for the first device
	held   []*core.Tensor // gradients of the other devices that are being summed
	stale  staleness
}

// copied is a copy of a tensor's contents, of which nothing changes it.
type copied struct {
	tensor  *core.Tensor
	source  *core.Storage
	version uint32
}

// NewReplicas returns what copies the tensors, parameters and buffers of a module in the order of their use, to the devices.
// They must be on the first device. A device that is given twice has two replicas.
func NewReplicas(tensors []*core.Tensor, names []string, devices []core.Device) (*Replicas, error) {
	if len(devices) == 0 {
		return nil, core.Errorf(core.ValueError, "data_parallel", "got no devices")
	}
	r := &Replicas{devices: devices, tensors: tensors, names: make([]string, len(tensors)), copies: make([][]copied, len(devices))}
	copy(r.names, names)
	for i, t := range tensors {
		if err := t.Usable("data_parallel"); err != nil {
			return nil, core.Errorf(core.StateError, "data_parallel", "%s: %w", r.names[i], err)
		}
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	for d := range r.copies {
		r.copies[d] = make([]copied, len(tensors))
	}
	r.makeBuckets()
	return r, nil
}

// check returns an error that names both devices if a tensor is not on the first.
func (r *Replicas) check() error {
	for i, t := range r.tensors {
		if t.Device() != r.devices[0] {
			return core.Errorf(core.DeviceError, "data_parallel", "parameters and buffers must be on %v, the first device, but %s is on %v", r.devices[0], r.names[i], t.Device())
		}
	}
	return nil
}

// makeBuckets divides the tensors, from the last to the first, as backward meets them.
func (r *Replicas) makeBuckets() {
	var open []int
	bytes := 0
	for i := len(r.tensors) - 1; i >= 0; i-- {
		open = append(open, i)
		bytes += r.tensors[i].Numel() * r.tensors[i].DType().Size()
		if bytes >= BucketBytes {
			r.buckets = append(r.buckets, open)
			open, bytes = nil, 0
		}
	}
	if open != nil {
		r.buckets = append(r.buckets, open)
	}
	r.stale.queues = make([][]update, len(r.buckets))
	r.stale.applied = make([][]int, len(r.buckets))
	for b := range r.stale.applied {
		r.stale.applied[b] = make([]int, len(r.devices))
	}
}

// Replicate returns the tensors as they are now on the first n devices, by device and number; those of the first device
// share the originals' memory. Where gradients are recorded, those of all copies flow back to the originals, summed in the
// order of the devices. The copies belong to the caller and to its scope.
func (r *Replicas) Replicate(n int) ([][]*core.Tensor, error) {
	if err := r.guard.Enter("data_parallel"); err != nil {
		return nil, err
	}
	defer r.guard.Leave()
	if n < 1 || n > len(r.devices) {
		return nil, core.Errorf(core.ValueError, "data_parallel", "got %d replicas to make on %d devices", n, len(r.devices))
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := r.refresh(n); err != nil {
		return nil, err
	}
	out := make([][]*core.Tensor, n)
	for d := range out {
		out[d] = make([]*core.Tensor, len(r.tensors))
		for i, t := range r.tensors {
			if d > 0 {
				t = r.copies[d][i].tensor
			}
			out[d][i] = t.Detach()
		}
	}
	m := core.CurrentMode()
	if !m.GradEnabled() {
		return out, nil
	}
	r.letGo() // of a pass that was left in the middle
	clock := r.stale.begin()
	for b, list := range r.buckets {
		r.record(m, b, list, out, clock)
	}
	return out, nil
}

// refresh makes the copies on the first n devices anew of which the originals have changed. A GPU copies or computes, not both
// at once, and the others cannot begin before they have what they compute with: the first one therefore sends before it computes.
// It does not wait until they have it.
func (r *Replicas) refresh(n int) (err error) {
	lists := make([][]*core.Tensor, n)
	var works collective.Works
	send := func() error {
		w, err := collective.BroadcastSyncMany(lists)
		works, lists = append(works, w...), make([][]*core.Tensor, n)
		return err
	}
	bytes := 0
	for i, t := range r.tensors {
		fresh := true
		for d := 1; d < n; d++ {
			c := &r.copies[d][i]
			fresh = fresh && c.tensor != nil && c.source == t.Storage() && c.version == t.Storage().Version()
		}
		if fresh {
			continue
		}
		core.NoGrad(func() {
			core.WithCategory(core.Parameter, func() { err = r.renew(i, n, lists) })
		})
		if bytes += t.Numel() * t.DType().Size(); err == nil && len(works) == 0 && bytes >= BucketBytes {
			err = send() // on its way while the rest is prepared
		}
		if err != nil {
			break
		}
	}
	if err == nil && len(lists[0]) > 0 {
		err = send()
	}
	if err != nil {
		r.forget() // some copies may not have got their contents
		return err
	}
	if first := r.devices[0]; !first.HostAccessible() {
		for _, w := range works {
			core.CurrentContext().Stream(first).Wait(w.Event())
		}
	}
	return nil
}

// hold keeps gradients until the backward pass has ended. Their memory would otherwise go to what the device computes next, which
// would wait for their sum.
func (r *Replicas) hold(ctx *core.BackwardContext, lists [][]*core.Tensor) {
	if len(r.held) == 0 {
		if err := autograd.QueueCallback(func() error { return r.Use(r.letGo) }); err != nil {
			ctx.Fail(err)
			return
		}
	}
	for _, list := range lists {
		for _, g := range list {
			r.held = append(r.held, g.Detach().Keep())
		}
	}
}

func (r *Replicas) letGo() {
	for _, g := range r.held {
		g.Release()
	}
	r.held = nil
}

// forget gives the copies back.
func (r *Replicas) forget() {
	for _, list := range r.copies {
		for i := range list {
			if t := list[i].tensor; t != nil {
				t.Release()
			}
			list[i] = copied{}
		}
	}
}

// renew gives tensor i new copies on the first n devices, and adds original and copies to the lists of what is to be sent.
func (r *Replicas) renew(i, n int, lists [][]*core.Tensor) error {
	t := r.tensors[i].Detach()
	defer t.Release()
	dense := t.Contiguous()
	for d := 1; d < n; d++ {
		var fresh *core.Tensor
		if dense {
			dt := t.DType()
			fresh = op.EmptyWith(t.Shape(), op.TensorOptions{DType: &dt, Device: r.devices[d]}).Keep()
			lists[d] = append(lists[d], fresh)
		} else {
			fresh = op.ToDevice(t, r.devices[d]).Keep()
		}
		if err := fresh.Err(); err != nil {
			return err
		}
		if old := r.copies[d][i].tensor; old != nil {
			old.Release()
		}
		s := r.tensors[i].Storage()
		r.copies[d][i] = copied{fresh, s, s.Version()}
	}
	if dense {
		lists[0] = append(lists[0], r.tensors[i])
	}
	return nil
}

// Devices returns the devices.
func (r *Replicas) Devices() []core.Device { return r.devices }

// Release gives the copies' memory back, and drops gradients that were not applied yet.
func (r *Replicas) Release() {
	r.guard.Later(func() {
		r.forget()
		r.letGo()
		r.stale.drop()
	})
}

// Use runs fn, which reads or changes the replicas, while no other thread uses them.
func (r *Replicas) Use(fn func()) error {
	if err := r.guard.Enter("data_parallel"); err != nil {
		return err
	}
	defer r.guard.Leave()
	fn()
	return nil
}
