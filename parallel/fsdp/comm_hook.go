package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Hook is a communication hook: it averages a unit's gradients over the ranks in place of the reduce-scatter or all-reduce.
// Every rank must register the same one. It runs on a side stream, beside backward, and need not wait for what it launches.
type Hook func(r *Reduction) error

// A Reduction is the input and output of a communication hook: the gradients of a unit's parameters in one dtype, as one flat
// tensor.
type Reduction struct {
	// Full is this rank's full gradients in one dimension: one chunk for each rank of the group, all of one size. The chunk of a rank has its
	// rows of every parameter, one parameter after the other, and is padded with zeros.
	Full *core.Tensor
	// Part is the output: this rank's chunk of the average over the ranks. If the parameters are replicated, it is Full.
	Part *core.Tensor
	// Group is the group to average over.
	Group *collective.Group

	context *core.Context
}

// Context returns the context in which a hook of another language works, with the side stream as its current stream.
func (r *Reduction) Context() *core.Context { return r.context }

// RegisterHook registers a communication hook for the unit's gradients. A unit can have one, and none with hybrid sharding.
func (u *Unit) RegisterHook(h Hook) error {
	if h == nil {
		return core.Errorf(core.TypeError, "register_comm_hook", "got no function")
	}
	return u.setCommHook(h, 0, nil)
}

// RegisterForeignHook registers a communication hook of another language. Backward asks its caller to run it: see [autograd.Ask].
// The request has the given ID, and its payload is the [Reduction]. drop is called when the hook is no longer used.
func (u *Unit) RegisterForeignHook(id uint64, drop func()) error {
	if id == 0 {
		return core.Errorf(core.TypeError, "register_comm_hook", "got no function")
	}
	return u.setCommHook(nil, id, drop)
}

func (u *Unit) setCommHook(h Hook, foreign uint64, drop func()) error {
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.checkCommHook(); err != nil {
		return err
	}
	u.commHook, u.foreignHook, u.dropForeignHook = h, foreign, drop
	return nil
}

// checkCommHook returns an error if a communication hook cannot be registered.
func (u *Unit) checkCommHook() error {
	switch {
	case u.commHook != nil || u.foreignHook != 0:
		return core.Errorf(core.StateError, "register_comm_hook", "a hook was registered before, and there can be only one")
	case u.group != nil && u.options.Replicas != nil:
		return core.Errorf(core.NotImplemented, "register_comm_hook", "hooks cannot reduce gradients of hybrid sharding")
	case u.stats.Reductions > 0:
		return core.Errorf(core.StateError, "register_comm_hook", "hooks must be registered before the first step")
	}
	return nil
}

// reduceByCommHook is [Unit.reduce] with a communication hook: it packs the gradients, runs the hook, and unpacks the result.
func (u *Unit) reduceByCommHook(params []*parameter) error {
	t := u.tree
	r := &Reduction{context: t.sideContext(u.device)}
	if u.group != nil {
		r.Group = t.channel(u.group).For(u.purpose)
	}
	release := func() {
		r.Full.Release()
		r.Part.Release()
	}
	if err := t.onSideStream(u.device, func() error { return u.pack(r, params) }); err != nil {
		release()
		return err
	}
	if !u.replicated() {
		t.holdGradients(params)
	}
	finish := func() error {
		err := t.onSideStream(u.device, func() error { return u.unpack(r, params) })
		release()
		if err != nil {
			return err
		}
		return u.runPostHooks(params)
	}
	if u.foreignHook != 0 {
		q := &autograd.Request{ID: u.foreignHook, Grads: []*core.Tensor{r.Full.Alias(false).Keep()}, Payload: r}
		return autograd.Ask(q, func(answer []*core.Tensor) error {
			for _, t := range answer {
				t.Release() // the hook has written to r.Part
			}
			return finish()
		})
	}
	if err := t.onSideStream(u.device, func() error { return u.commHook(r) }); err != nil {
		release()
		return err
	}
	return finish()
}

// pack copies the full gradients to one flat tensor.
func (u *Unit) pack(r *Reduction, params []*parameter) (err error) {
	ranks, chunk := groupSize(u.group), 0
	for _, p := range params {
		chunk += p.numel(0)
	}
	d := u.reduceDType(params[0])
	o := op.TensorOptions{DType: &d, Device: u.device}
	r.Full = op.Full([]int{ranks * chunk}, core.Num(0), o).Keep()
	r.Part = r.Full
	if u.group == nil {
		r.Group = u.tree.channel(u.options.Replicas).For(u.purpose)
	} else {
		r.Part = op.Full([]int{chunk}, core.Num(0), o).Keep()
	}
	for rank := range ranks {
		offset := rank * chunk
		for _, p := range params {
			if g, n := p.full().Grad(), p.numel(rank); g != nil && n > 0 && err == nil {
				rows := g.Detach()
				if len(p.shape) > 0 {
					rows = op.Narrow(rows, p.dim, p.rows[rank], p.rows[rank+1]-p.rows[rank])
				}
				err = op.CopyInPlace(op.Narrow(r.Full, 0, offset, n), op.Reshape(rows, -1)).Err()
			}
			offset += p.numel(rank)
		}
	}
	if err == nil {
		err = r.Part.Err()
	}
	return err
}

// unpack adds the hook's result to the gradients of the shards.
func (u *Unit) unpack(r *Reduction, params []*parameter) error {
	offset := 0
	for _, p := range params {
		n := p.numel(u.rank())
		var g *core.Tensor
		core.WithCategory(core.Gradient, func() {
			g = op.Reshape(op.Clone(op.Narrow(r.Part, 0, offset, n)), p.shard().Shape()...).Keep()
		})
		offset += n
		if err := g.Err(); err != nil {
			return err
		}
		if u.replicated() {
			p.full().SetGrad(nil) // g is its average
		}
		if err := u.addToShards([]*parameter{p}, []*core.Tensor{g}); err != nil {
			return err
		}
		if u.replicated() {
			if err := p.addReducedGradient(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *Unit) dropCommHook() {
	if u.dropForeignHook != nil {
		u.dropForeignHook()
		u.dropForeignHook = nil
	}
}
