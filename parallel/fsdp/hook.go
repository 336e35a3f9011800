package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Hook reduces the gradients of a unit in the place of the collective. Every rank must register the same one. It runs on a stream
// beside backward, and need not wait for what it launches.
type Hook func(r *Reduction) error

// A Reduction is the gradients of a unit on their way to the shards, in one dimension and dtype.
type Reduction struct {
	// Full has this rank's gradients of all parameters: as many elements for each rank of the group, the rows that it has of
	// one parameter after those of the other, and zeros up to what the first rank has.
	Full *core.Tensor
	// Part, which the hook writes, is for this rank's part of the average over the ranks. Where parameters are not divided it
	// is Full, whose elements are those of the parameters.
	Part *core.Tensor
	// Group is the ranks to average over.
	Group *collective.Group

	context *core.Context
}

// Context returns the context in which a hook of another language works on the gradients: on a stream beside backward's.
func (r *Reduction) Context() *core.Context { return r.context }

// RegisterHook makes h reduce the unit's gradients. There can be one. Not for hybrid sharding.
func (u *Unit) RegisterHook(h Hook) error {
	if h == nil {
		return core.Errorf(core.TypeError, "register_comm_hook", "got no function")
	}
	return u.setHook(h, 0, nil)
}

// RegisterForeignHook makes a hook of another language reduce the unit's gradients. Backward asks its caller for it with a
// request of the given ID (see [autograd.Ask]), whose payload is the [Reduction]. drop is called when the hook is no longer
// used.
func (u *Unit) RegisterForeignHook(id uint64, drop func()) error {
	if id == 0 {
		return core.Errorf(core.TypeError, "register_comm_hook", "got no function")
	}
	return u.setHook(nil, id, drop)
}

func (u *Unit) setHook(h Hook, foreign uint64, drop func()) error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.hookable(); err != nil {
		return err
	}
	u.hook, u.foreign, u.dropForeign = h, foreign, drop
	return nil
}

func (u *Unit) hookable() error {
	switch {
	case u.hook != nil || u.foreign != 0:
		return core.Errorf(core.StateError, "register_comm_hook", "a hook was registered before, and there can be only one")
	case u.group != nil && u.options.Replicas != nil:
		return core.Errorf(core.NotImplemented, "register_comm_hook", "hooks cannot reduce gradients of hybrid sharding")
	case u.stats.Reductions > 0:
		return core.Errorf(core.StateError, "register_comm_hook", "hooks must be registered before the first step")
	}
	return nil
}

func (u *Unit) hooked() bool { return u.hook != nil || u.foreign != 0 }

// reduceByHook is reduce where a hook does it.
func (u *Unit) reduceByHook(params []*parameter) error {
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
	if u.foreign != 0 {
		q := &autograd.Request{ID: u.foreign, Grads: []*core.Tensor{r.Full.Alias(false).Keep()}, Payload: r}
		return autograd.Ask(q, func(answer []*core.Tensor) error {
			for _, t := range answer {
				t.Release() // the hook has written where it was to
			}
			return finish()
		})
	}
	if err := t.onSideStream(u.device, func() error { return u.hook(r) }); err != nil {
		release()
		return err
	}
	return finish()
}

// pack moves the full gradients to one tensor.
func (u *Unit) pack(r *Reduction, params []*parameter) (err error) {
	ranks, chunk := sizeOf(u.group), 0
	for _, p := range params {
		chunk += p.sizes[0]
	}
	d := u.reduceDType(params[0])
	o := op.TensorOptions{DType: &d, Device: u.device}
	r.Full = op.Full([]int{ranks * chunk}, core.Num(0), o).Keep()
	r.Part = r.Full
	if u.replicated() {
		r.Group = u.tree.channel(u.options.Replicas).For(u.purpose)
	} else {
		r.Part = op.Full([]int{chunk}, core.Num(0), o).Keep()
	}
	for rank := range ranks {
		at := rank * chunk
		for _, p := range params {
			g := p.full().Grad()
			if g == nil {
				p.absent = true
			} else if n := p.sizes[rank]; n > 0 && err == nil {
				rows := op.Reshape(p.part(g.Detach(), p.rows[rank], p.rows[rank+1]), -1)
				err = op.CopyInPlace(op.Narrow(r.Full, 0, at, n), rows).Err()
			}
			at += p.sizes[rank]
		}
	}
	if err == nil {
		err = r.Part.Err()
	}
	return err
}

// unpack adds the rank's part to the gradients of the shards.
func (u *Unit) unpack(r *Reduction, params []*parameter) error {
	at := 0
	for _, p := range params {
		n := p.sizes[u.rank()]
		var g *core.Tensor
		core.WithCategory(core.Gradient, func() {
			g = op.Reshape(op.Clone(op.Narrow(r.Part, 0, at, n)), p.shard().Shape()...).Keep()
		})
		at += n
		if err := g.Err(); err != nil {
			return err
		}
		if u.replicated() {
			p.tensor.SetGrad(nil) // whose average this is
		}
		if err := u.add([]*parameter{p}, []*core.Tensor{g}); err != nil {
			return err
		}
		if u.replicated() {
			if err := p.rejoin(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *Unit) dropHook() {
	if u.dropForeign != nil {
		u.dropForeign()
		u.dropForeign = nil
	}
}
