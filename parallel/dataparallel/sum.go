package dataparallel

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A joint is where the gradients of a bucket's copies meet in one backward pass.
type joint struct {
	replicas *Replicas
	bucket   int
	tensors  int // of the bucket that are trained
	clock    int
	made     []core.Event // by device: its gradients are there, and used by nothing that was launched later
}

// record makes the copies of a bucket's tensors, as far as they are trained, outputs of a node for each device, which notes when
// the device has made their gradients, and these outputs of one that sums them. Without the notes a sum would also wait for what
// the other devices were given while the thread came to the last one's gradients.
func (r *Replicas) record(m core.Mode, b int, list []int, out [][]*core.Tensor, clock int) {
	var trained []*core.Tensor
	var at []int
	for _, i := range list {
		if r.tensors[i].RequiresGrad() {
			trained = append(trained, r.tensors[i])
			at = append(at, i)
		}
	}
	if len(trained) == 0 {
		return
	}
	j := &joint{replicas: r, bucket: b, tensors: len(at), clock: clock, made: make([]core.Event, len(out))}
	sum := core.NewNode(m, "replicate", j.derive, trained...)
	sum.Prompt = true
	for d := range out {
		between := make([]*core.Tensor, len(at))
		for k, i := range at {
			between[k] = out[d][i].Detach()
			sum.Attach(between[k], d*len(at)+k)
		}
		part := core.NewNode(m, "replicate", func(dv *core.BackwardContext) { j.arrive(dv, d) }, between...)
		part.Prompt = true
		for k, i := range at {
			part.Attach(out[d][i], k)
			between[k].Release()
		}
		part.Release()
	}
	sum.Release()
}

// arrive passes on the gradients of device dev, which nobody else uses from then on.
func (j *joint) arrive(ctx *core.BackwardContext, dev int) {
	alone := !ctx.CreateGraph() && !j.replicas.stale.deferred()
	for k := range j.tensors {
		g := ctx.GradAt(k)
		if g == nil {
			continue
		}
		if alone && (!g.Contiguous() || g.Storage().Refs() > 1) {
			g = op.Clone(g) // somebody else reads it
		}
		ctx.Set(k, g)
	}
	j.made[dev] = core.CurrentContext().Stream(j.replicas.devices[dev]).Record()
}

// derive sums the gradients of the copies.
func (j *joint) derive(ctx *core.BackwardContext) {
	r := j.replicas
	if err := r.guard.Enter("data_parallel"); err != nil {
		ctx.Fail(err)
		return
	}
	defer r.guard.Leave()
	grads := make([][]*core.Tensor, len(j.made))
	for dev := range grads {
		grads[dev] = make([]*core.Tensor, j.tensors)
		for k := range grads[dev] {
			grads[dev][k] = ctx.GradAt(dev*j.tensors + k)
		}
	}
	switch {
	case ctx.CreateGraph():
		for k := range j.tensors {
			if g := r.sum(grads, k); g != nil {
				ctx.Set(k, g)
			}
		}
		return
	case r.stale.deferred():
		r.postpone(ctx, j, grads)
		return
	}
	var used []int
	for k := range j.tensors {
		if slices.ContainsFunc(grads, func(list []*core.Tensor) bool { return list[k] != nil }) {
			used = append(used, k)
		}
	}
	if len(used) == 0 {
		return
	}
	made := slices.Clone(j.made)
	lists := make([][]*core.Tensor, len(grads))
	for dev := range grads {
		for _, k := range used {
			g := grads[dev][k]
			if g == nil {
				dt := ctx.InputDType(k)
				g = op.ZerosWith(ctx.InputShape(k), op.TensorOptions{DType: &dt, Device: r.devices[dev]})
				made[dev] = nil
			}
			if err := g.Err(); err != nil {
				ctx.Fail(err)
				return
			}
			lists[dev] = append(lists[dev], g)
		}
	}
	if len(lists) > 1 {
		if err := collective.ReduceSyncMany(lists, collective.Sum, made); err != nil {
			ctx.Fail(err)
			return
		}
		r.hold(ctx, lists[1:])
	}
	for i, k := range used {
		ctx.Set(k, lists[0][i])
	}
}

// sum returns the sum of gradient k over the devices, on the first, by differentiable operations; nil if there are none.
func (r *Replicas) sum(grads [][]*core.Tensor, k int) *core.Tensor {
	var total *core.Tensor
	for _, list := range slices.Concat(grads[1:], grads[:1]) { // the first device's last, as [collective.ReduceSyncMany] has it
		g := list[k]
		if g == nil {
			continue
		}
		if g = collective.ToDevice(g, r.devices[0]); total != nil {
			g = op.Add(total, g)
		}
		total = g
	}
	return total
}
