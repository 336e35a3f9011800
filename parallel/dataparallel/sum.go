package dataparallel

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A bucketSum is the node that sums the gradients of a bucket's copies in one backward pass.
type bucketSum struct {
	replicas *Replicas
	bucket   int
	tensors  int // number of the bucket's tensors that require gradients
	clock    int
	ready    []core.Event // by device: its gradients are ready, and nothing launched later uses them
}

// record makes the copies of a bucket's trained tensors outputs of one node per device, and the inputs of those nodes outputs of a node
// that sums. The node of a device records an event when its gradients are ready. Without these events the sum would also wait for work
// launched on the other devices until the last device's gradients arrive.
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
	j := &bucketSum{replicas: r, bucket: b, tensors: len(at), clock: clock, ready: make([]core.Event, len(out))}
	sum := core.NewNode(m, "replicate", j.derive, trained...)
	sum.Prompt = true
	for d := range out {
		intermediate := make([]*core.Tensor, len(at))
		for k, i := range at {
			intermediate[k] = out[d][i].Detach()
			sum.Attach(intermediate[k], d*len(at)+k)
		}
		part := core.NewNode(m, "replicate", func(dv *core.BackwardContext) { j.passOn(dv, d) }, intermediate...)
		part.Prompt = true
		for k, i := range at {
			part.Attach(out[d][i], k)
			intermediate[k].Release()
		}
		part.Release()
	}
	sum.Release()
}

// passOn passes on the gradients of device dev. Nothing else may use them afterwards.
func (j *bucketSum) passOn(ctx *core.BackwardContext, dev int) {
	alone := !ctx.CreateGraph() && !j.replicas.stale.deferred()
	for k := range j.tensors {
		g := ctx.GradAt(k)
		if g == nil {
			continue
		}
		if alone && (!g.Contiguous() || g.Storage().Refs() > 1) {
			g = op.Clone(g) // something else refers to it
		}
		ctx.Set(k, g)
	}
	j.ready[dev] = core.CurrentContext().Stream(j.replicas.devices[dev]).Record()
}

// derive sums the gradients of the copies.
func (j *bucketSum) derive(ctx *core.BackwardContext) {
	r := j.replicas
	if err := r.guard.Enter("data_parallel"); err != nil {
		ctx.Fail(err)
		return
	}
	defer r.guard.Leave()
	grads := make([][]*core.Tensor, len(j.ready))
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
		r.queueLate(ctx, j, grads)
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
	made := slices.Clone(j.ready)
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
		r.keepUntilEnd(ctx, lists[1:])
	}
	for i, k := range used {
		ctx.Set(k, lists[0][i])
	}
}

// sum returns the sum of gradient k over the devices, on the first device, with differentiable operations; nil if no device has one.
func (r *Replicas) sum(grads [][]*core.Tensor, k int) *core.Tensor {
	var total *core.Tensor
	for _, list := range slices.Concat(grads[1:], grads[:1]) { // in the order of [collective.ReduceSyncMany]
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
