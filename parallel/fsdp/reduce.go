package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// reduce replaces the full gradients of the unit's parameters by their average over the ranks, each rank's part of which
// goes to the gradients of the shards. Parameters that have none here count as zeros.
func (u *Unit) reduce() error {
	u.reduced, u.touched = true, false
	var params []*parameter
	for _, p := range u.params {
		p.absent, p.had = false, p.shard().Grad() != nil
		if p.full().RequiresGrad() {
			params = append(params, p)
		}
	}
	if len(params) == 0 {
		return nil
	}
	for _, p := range params {
		if g := p.full().Grad(); g != nil && g.RequiresGrad() && sizeOf(u.group)*sizeOf(u.options.Replicas) > 1 {
			return core.Errorf(core.NotImplemented, "backward", "parameter %s of the fully sharded unit %q: its gradient cannot be differentiated again, once it is averaged over ranks; without create_graph it is, and gradients of inputs (autograd.grad) can be recorded", p.name, u.Name())
		}
	}
	if u.hooked() && sizeOf(u.group)*sizeOf(u.options.Replicas) > 1 {
		u.stats.Reductions++
		return u.reduceByHook(params)
	}
	u.stats.Reductions++
	if u.replicated() {
		return u.average(params)
	}
	ins, outs, sizes := make([]*core.Tensor, len(params)), make([]*core.Tensor, len(params)), make([][]int, len(params))
	direct := true // the sums go right into the shards' gradients
	for i, p := range params {
		s := p.shard()
		d := u.reduceDType(p)
		sizes[i] = p.sizes
		direct = direct && s.Grad() == nil && len(p.arriving()) == 0 && d == s.DType() && s.Device() == u.device && p.partial == nil && !u.defers()
	}
	t := u.tree
	if direct {
		core.NoGrad(func() {
			core.WithCategory(core.Gradient, func() {
				for i, p := range params {
					outs[i] = likeShard(p, p.shard().DType())
				}
			})
		})
		for _, o := range outs {
			if err := o.Err(); err != nil {
				return err
			}
		}
	}
	err := t.onSideStream(u.device, func() error {
		for i, p := range params {
			g := p.full().Grad()
			d := u.reduceDType(p)
			if g == nil {
				p.absent = p.partial == nil
				g = op.Full(p.shape, core.Num(0), op.TensorOptions{DType: &d, Device: u.device})
			}
			g = op.Contiguous(u.cast(g.Detach(), d))
			if err := g.Err(); err != nil {
				return err
			}
			ins[i] = g
			if !direct {
				outs[i] = likeShard(p, d)
			}
			if err := outs[i].Err(); err != nil {
				return err
			}
		}
		if err := u.reduceTo(params, outs, ins, sizes); err != nil {
			return err
		}
		if direct {
			return nil
		}
		return u.add(params, outs)
	})
	for i, p := range params {
		if direct {
			p.setGrad(outs[i])
		}
	}
	t.holdGradients(params)
	if err != nil {
		return err
	}
	return u.runPostHooks(params)
}

func (u *Unit) reduceDType(p *parameter) core.DType {
	if d := u.options.Precision.Reduce; d != nil {
		return *d
	}
	return p.full().DType()
}

// defers reports whether reductions leave out the replicas for now.
func (u *Unit) defers() bool { return u.options.Replicas != nil && !u.all }

// likeShard returns a new tensor of the shard's shape on the unit's device.
func likeShard(p *parameter, d core.DType) *core.Tensor {
	return op.EmptyWith(p.shard().Shape(), op.TensorOptions{DType: &d, Device: p.unit.device}).Keep()
}

// reduceTo sums ins over the shard group to outs, and then over the replicas, and divides once.
func (u *Unit) reduceTo(params []*parameter, outs, ins []*core.Tensor, sizes [][]int) error {
	t, replicas := u.tree, u.options.Replicas
	if replicas == nil && u.factor == 0 {
		return t.keep(t.channel(u.group).For(u.purpose).ReduceScatterParts(outs, ins, sizes, collective.Avg))
	}
	if err := t.keep(t.channel(u.group).For(u.purpose).ReduceScatterParts(outs, ins, sizes, collective.Sum)); err != nil {
		return err
	}
	if u.defers() {
		return nil
	}
	for i, p := range params {
		if p.partial != nil {
			if err := op.AddInPlace(outs[i], p.partial).Err(); err != nil {
				return err
			}
			p.partial.Release()
			p.partial = nil
		}
	}
	if replicas != nil {
		if err := t.keep(t.channel(replicas).For(u.purpose).AllReduceMany(outs, collective.Sum)); err != nil {
			return err
		}
	}
	for _, o := range outs {
		if err := op.DivInPlace(o, core.Num(u.divisor())).Err(); err != nil {
			return err
		}
	}
	return nil
}

// divisor returns by what sums of gradients are divided.
func (u *Unit) divisor() float64 {
	if u.factor != 0 {
		return u.factor
	}
	return float64(sizeOf(u.group) * sizeOf(u.options.Replicas))
}

// add adds reduced gradients to those of the shards, and lets go of them.
func (u *Unit) add(params []*parameter, outs []*core.Tensor) error {
	for i, p := range params {
		s, g := p.shard(), outs[i]
		if u.defers() {
			if p.partial == nil {
				p.partial = g
				continue
			}
			if err := op.AddInPlace(p.partial, g).Err(); err != nil {
				return err
			}
			g.Release()
			continue
		}
		made := op.ToDevice(op.To(g, s.DType()), s.Device())
		if err := made.Err(); err != nil {
			return err
		}
		if hooks := p.arriving(); len(hooks) > 0 {
			if err := p.change(made.Detach().Keep(), hooks); err != nil {
				return err
			}
		} else if err := p.accumulate(made); err != nil {
			return err
		}
		g.Release()
	}
	return nil
}

// accumulate adds a reduced gradient to the shard's.
func (p *parameter) accumulate(g *core.Tensor) error {
	s := p.shard()
	if old := s.Grad(); old != nil {
		return op.AddInPlace(old, g).Err()
	}
	own := g.Detach().Keep() // of memory that is a cast's, or the sum's itself
	own.Storage().SetCategory(core.Gradient)
	p.setGrad(own)
	return nil
}

// average is reduce of parameters that are not divided.
func (u *Unit) average(params []*parameter) error {
	if sizeOf(u.options.Replicas) == 1 && u.factor == 0 || u.defers() {
		return nil
	}
	list := make([]*core.Tensor, len(params))
	return u.tree.onSideStream(u.device, func() error {
		for i, p := range params {
			p.setAside()
			g := p.tensor.Grad()
			if g == nil {
				p.absent = true
				g = op.ZerosLike(p.tensor.Detach(), op.TensorOptions{}).Keep()
				if err := g.Err(); err != nil {
					return err
				}
				p.tensor.SetGrad(g)
			} else if !g.Contiguous() || g.RequiresGrad() {
				g = op.Contiguous(op.Clone(g)).Keep()
				if err := g.Err(); err != nil {
					return err
				}
				p.tensor.SetGrad(g)
			}
			list[i] = g
		}
		how := collective.Avg
		if u.factor != 0 {
			how = collective.Sum
		}
		if u.options.Replicas != nil {
			if err := u.tree.keep(u.tree.channel(u.options.Replicas).For(u.purpose).AllReduceMany(list, how)); err != nil {
				return err
			}
		}
		for i, p := range params {
			if u.factor != 0 {
				if err := op.DivInPlace(list[i], core.Num(u.factor)).Err(); err != nil {
					return err
				}
			}
			if err := p.rejoin(); err != nil {
				return err
			}
		}
		return nil
	})
}

// averaged are the groups over which gradients were averaged in a backward pass, one after the other.
type averaged [2]*collective.Group

func (u *Unit) averaged() averaged {
	if u.defers() {
		return averaged{u.group}
	}
	return averaged{u.group, u.options.Replicas}
}

// settleAbsent drops the gradients of parameters that no rank has one for.
func (t *Tree) settleAbsent() error {
	var order []averaged
	params := map[averaged][]*parameter{}
	for _, u := range t.units {
		if !u.reduced {
			continue
		}
		u.reduced = false
		for _, p := range u.params {
			if p.full().RequiresGrad() {
				over := u.averaged()
				if params[over] == nil {
					order = append(order, over)
				}
				params[over] = append(params[over], p)
			}
		}
	}
	for _, over := range order {
		if err := t.settle(over, params[over]); err != nil {
			return err
		}
	}
	return nil
}

// sameParameters returns an error unless each rank has told of as many parameters as this one, which has n.
func sameParameters(g *collective.Group, told [][]byte, n int) error {
	for i, of := range told {
		if len(of) != n {
			return core.Errorf(core.DistributedError, "fsdp", "rank %d has averaged the gradients of %d parameters in the last backward pass, rank %d those of %d; want the same units and trained parameters on each rank",
				g.Rank(), n, i, len(of))
		}
	}
	return nil
}

// settle is settleAbsent of parameters that are averaged over the same ranks. These tell each other what they have, and
// replicas what their groups have. Only a rank that lacks some waits for the others: one that lacks none knows that its group
// lacks none.
func (t *Tree) settle(over averaged, params []*parameter) error {
	used, missing := make([]byte, len(params)), false
	for i, p := range params {
		missing = missing || p.absent
		if !p.absent {
			used[i] = 1
		}
	}
	for _, g := range over {
		if g == nil {
			continue
		}
		w := t.channel(g).For("the gradients of "+params[0].unit.purpose).StartExchange("which parameters have a gradient", slices.Clone(used))
		verify := func() error { return sameParameters(g, w.Payloads(), len(params)) }
		if !missing {
			t.works[0] = append(t.works[0], awaited{w, verify})
			continue
		}
		if err := w.Wait(); err != nil {
			return err
		}
		if err := verify(); err != nil {
			return err
		}
		for _, of := range w.Payloads() {
			for i := range of {
				used[i] |= of[i]
			}
		}
	}
	for i, p := range params {
		switch {
		case !p.absent:
		case used[i] != 0:
			if err := p.runPostHooks(); err != nil {
				return err
			}
		case !p.had:
			p.shard().SetGrad(nil)
			p.partial.Release()
			p.partial = nil
		}
	}
	return nil
}
