package dataparallel

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// BucketBytes is the size of a bucket of gradients. Buckets are summed while backward runs.
const BucketBytes = 25 << 20

// Replicas copies tensors from the first device to the others, and adds the gradients of the copies to those of the originals.
type Replicas struct {
	guard   core.Guard
	devices []core.Device
	tensors []*core.Tensor
	names   []string
	buckets [][]int // indices of tensors

	copies [][]replicaCopy // by device and tensor; none on the first device
	kept   []*core.Tensor  // gradients of other devices that are being summed
	stale  staleness
}

// replicaCopy is a copy of a tensor and the version that it was copied from.
type replicaCopy struct {
	tensor  *core.Tensor
	source  *core.Storage
	version uint32
}

// NewReplicas prepares copies of tensors on the devices. The tensors are the parameters and buffers of a module in the order of use, and
// must be on the first device. A device that is listed twice gets two replicas.
func NewReplicas(tensors []*core.Tensor, names []string, devices []core.Device) (*Replicas, error) {
	if len(devices) == 0 {
		return nil, core.Errorf(core.ValueError, "data_parallel", "got no devices")
	}
	r := &Replicas{devices: devices, tensors: tensors, names: make([]string, len(tensors)), copies: make([][]replicaCopy, len(devices))}
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
		r.copies[d] = make([]replicaCopy, len(tensors))
	}
	r.makeBuckets()
	return r, nil
}

// check returns an error if a tensor is not on the first device. It names both devices.
func (r *Replicas) check() error {
	for i, t := range r.tensors {
		if t.Device() != r.devices[0] {
			return core.Errorf(core.DeviceError, "data_parallel", "parameters and buffers must be on %v, the first device, but %s is on %v", r.devices[0], r.names[i], t.Device())
		}
	}
	return nil
}

// makeBuckets groups the tensors from the last to the first, the order of backward.
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

// Replicate returns the current tensors on the first n devices, by device and index. Those of the first device share the originals' memory.
// If gradients are recorded, the gradients of all copies flow to the originals, summed in the order of the devices. The copies belong to
// the caller and its scope.
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
	for _, t := range r.tensors {
		if err := core.RefuseTangent("data_parallel", t); err != nil {
			return nil, err
		}
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
	r.releaseKept() // of an abandoned pass
	clock := r.stale.begin()
	for b, list := range r.buckets {
		r.record(m, b, list, out, clock)
	}
	return out, nil
}

// refresh copies the originals that have changed to the first n devices. The first device sends before it computes, because a GPU either
// copies or computes, and the other devices need the parameters before they can start. It does not wait for the copies.
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
			err = send() // in flight while the rest is prepared
		}
		if err != nil {
			break
		}
	}
	if err == nil && len(lists[0]) > 0 {
		err = send()
	}
	if err != nil {
		r.releaseCopies() // some copies may lack their contents
		return err
	}
	if first := r.devices[0]; !first.HostAccessible() {
		for _, w := range works {
			core.CurrentContext().Stream(first).Wait(w.Event())
		}
	}
	return nil
}

// keepUntilEnd keeps gradients until the end of the backward pass. Otherwise the next allocation would reuse their memory and wait for the sum.
func (r *Replicas) keepUntilEnd(ctx *core.BackwardContext, lists [][]*core.Tensor) {
	if len(r.kept) == 0 {
		if err := autograd.QueueCallback(func() error { return r.Use(r.releaseKept) }); err != nil {
			ctx.Fail(err)
			return
		}
	}
	for _, list := range lists {
		for _, g := range list {
			r.kept = append(r.kept, g.Detach().Keep())
		}
	}
}

func (r *Replicas) releaseKept() {
	for _, g := range r.kept {
		g.Release()
	}
	r.kept = nil
}

// releaseCopies releases the copies.
func (r *Replicas) releaseCopies() {
	for _, list := range r.copies {
		for i := range list {
			if t := list[i].tensor; t != nil {
				t.Release()
			}
			list[i] = replicaCopy{}
		}
	}
}

// renew creates new copies of tensor i on the first n devices, and adds original and copies to the lists to send.
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
		r.copies[d][i] = replicaCopy{fresh, s, s.Version()}
	}
	if dense {
		lists[0] = append(lists[0], r.tensors[i])
	}
	return nil
}

// Devices returns the devices.
func (r *Replicas) Devices() []core.Device { return r.devices }

// Release frees the copies, and drops gradients that were not applied yet.
func (r *Replicas) Release() {
	r.guard.Later(func() {
		r.releaseCopies()
		r.releaseKept()
		r.stale.drop()
	})
}

// Use runs fn while no other thread uses the replicas.
func (r *Replicas) Use(fn func()) error {
	if err := r.guard.Enter("data_parallel"); err != nil {
		return err
	}
	defer r.guard.Leave()
	fn()
	return nil
}
