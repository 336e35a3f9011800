package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// reduce averages the gradients of the unit's parameters over the ranks: it reduce-scatters the full gradients and accumulates
// the results in the shards' gradients. A parameter without a gradient on this rank counts as zeros.
func (u *Unit) reduce() error {
	again := u.reduceStarted // by this backward pass, before a reentrant checkpoint has added to gradients
	u.reduceStarted, u.unreduced = true, false
	var params []*parameter
	for _, p := range u.params {
		missing := p.full().Grad() == nil && p.partialGradient == nil
		p.postponed = missing
		if again {
			p.gradientMissing = p.gradientMissing && missing
		} else {
			p.gradientMissing, p.joined = missing, false
			p.hadGradient = p.shard().Grad() != nil || missing && p.awaitsOwn()
		}
		if p.full().RequiresGrad() {
			params = append(params, p)
		}
	}
	if len(params) == 0 {
		return nil
	}
	for _, p := range params {
		if g := p.full().Grad(); g != nil && g.RequiresGrad() && u.worldSize() > 1 {
			return core.Errorf(core.NotImplemented, "backward", "parameter %s of the fully sharded unit %q: its gradient cannot be differentiated again, once it is averaged over ranks; without create_graph it is, and gradients of inputs (autograd.grad) can be recorded", p.name, u.Name())
		}
	}
	u.stats.Reductions++
	if (u.commHook != nil || u.foreignHook != 0) && u.worldSize() > 1 {
		return u.reduceByCommHook(params)
	}
	if u.replicated() {
		return u.allReduce(params)
	}
	if u.alone {
		return u.reduceAlone(params)
	}
	ins, outs, sizes := make([]*core.Tensor, len(params)), make([]*core.Tensor, len(params)), make([][]int, len(params))
	inPlace := true // the reduce-scatter writes the shards' gradients directly
	for _, p := range params {
		s := p.shard()
		d := u.reduceDType(p)
		inPlace = inPlace && s.Grad() == nil && len(p.gradientHooks()) == 0 && !p.holds() && d == s.DType() && s.Device() == u.device && p.partialGradient == nil && !u.defersAllReduce()
	}
	t := u.tree
	if inPlace {
		core.NoGrad(func() {
			core.WithCategory(core.Gradient, func() {
				for i, p := range params {
					outs[i] = emptyLikeShard(p, p.shard().DType())
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
				g = op.Full(p.shape, core.Num(0), op.TensorOptions{DType: &d, Device: u.device})
			}
			g = op.Contiguous(u.cast(g.Detach(), d))
			if err := g.Err(); err != nil {
				return err
			}
			ins[i], sizes[i] = p.spread(g)
			if err := ins[i].Err(); err != nil {
				return err
			}
			if !inPlace {
				outs[i] = emptyLikeShard(p, d)
			}
			if err := outs[i].Err(); err != nil {
				return err
			}
		}
		if err := u.reduceTo(params, outs, ins, sizes); err != nil {
			return err
		}
		if inPlace {
			return nil
		}
		return u.addToShards(params, outs)
	})
	for i, p := range params {
		if inPlace {
			p.shard().SetGrad(outs[i])
		}
	}
	t.holdGradients(params)
	if err != nil {
		return err
	}
	return u.runPostHooks(params)
}

// reduceAlone is [Unit.reduce] on the only rank of a shard group: the shards get the full gradients, averaged over replicas.
func (u *Unit) reduceAlone(params []*parameter) error {
	if u.worldSize() == 1 && u.divideFactor == 0 {
		for _, p := range params {
			if p.full().Grad() == nil {
				continue
			}
			if err := p.moveGradient(); err != nil {
				return err
			}
		}
		return u.runPostHooks(params)
	}
	err := u.tree.onSideStream(u.device, func() error {
		outs := make([]*core.Tensor, len(params))
		for i, p := range params {
			d := u.reduceDType(p)
			g := p.full().Grad()
			if g == nil {
				g = op.Full(p.shape, core.Num(0), op.TensorOptions{DType: &d, Device: u.device})
			}
			if outs[i] = op.Contiguous(u.cast(g.Detach(), d)).Keep(); outs[i].Err() != nil {
				return outs[i].Err()
			}
		}
		if err := u.reduceOverReplicas(params, outs); err != nil {
			return err
		}
		return u.addToShards(params, outs)
	})
	for _, p := range params {
		p.full().SetGrad(nil)
	}
	if err != nil {
		return err
	}
	return u.runPostHooks(params)
}

// moveGradient makes the full parameter's gradient the shard's, or adds it to that. A gradient that can be differentiated stays so.
func (p *parameter) moveGradient() (err error) {
	g := p.full().AutogradMeta().TakeGrad()
	if p.holds() {
		return p.hold(g)
	}
	if hooks := p.gradientHooks(); len(hooks) > 0 {
		return p.runGradientHooks(g, hooks)
	}
	if s := p.shard(); g.RequiresGrad() {
		if old := s.Grad(); old != nil {
			sum := op.Add(old, g).Keep()
			g.Release()
			g = sum
		}
		s.SetGrad(g)
		return g.Err()
	}
	old := p.shard().Grad()
	if old == nil {
		p.shard().SetGrad(g)
		return nil
	}
	core.NoGrad(func() { err = op.AddInPlace(old, g).Err() })
	g.Release()
	return err
}

// reduceDType returns the dtype in which the parameter's gradient is reduced.
func (u *Unit) reduceDType(p *parameter) core.DType {
	if d := u.options.Precision.Reduce; d != nil {
		return *d
	}
	return p.full().DType()
}

// defersAllReduce reports whether [Unit.SetAllReduce] has turned off the all-reduce over the replicas.
func (u *Unit) defersAllReduce() bool { return u.options.Replicas != nil && !u.allReduceGradients }

// emptyLikeShard returns a new tensor of the shard's shape on the unit's device.
func emptyLikeShard(p *parameter, d core.DType) *core.Tensor {
	return op.EmptyWith(p.shard().Shape(), op.TensorOptions{DType: &d, Device: p.unit.device}).Keep()
}

// reduceTo reduce-scatters ins over the shard group to outs, all-reduces outs over the replicas, and divides once.
func (u *Unit) reduceTo(params []*parameter, outs, ins []*core.Tensor, sizes [][]int) error {
	t, replicas := u.tree, u.options.Replicas
	if replicas == nil && u.divideFactor == 0 {
		return t.track(t.channel(u.group).For(u.purpose).ReduceScatterParts(outs, ins, sizes, collective.Avg))
	}
	if err := t.track(t.channel(u.group).For(u.purpose).ReduceScatterParts(outs, ins, sizes, collective.Sum)); err != nil {
		return err
	}
	return u.reduceOverReplicas(params, outs)
}

// reduceOverReplicas all-reduces gradients that were summed over the shard group over the replicas, and divides once.
func (u *Unit) reduceOverReplicas(params []*parameter, outs []*core.Tensor) error {
	t, replicas := u.tree, u.options.Replicas
	if u.defersAllReduce() {
		return nil
	}
	for i, p := range params {
		if p.partialGradient != nil {
			if err := op.AddInPlace(outs[i], p.partialGradient).Err(); err != nil {
				return err
			}
			p.partialGradient.Release()
			p.partialGradient = nil
		}
	}
	if replicas != nil {
		if err := t.track(t.channel(replicas).For(u.purpose).AllReduceMany(outs, collective.Sum)); err != nil {
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

// divisor returns the number that sums of gradients are divided by.
func (u *Unit) divisor() float64 {
	if u.divideFactor != 0 {
		return u.divideFactor
	}
	return float64(u.worldSize())
}

// worldSize returns the number of ranks that gradients are averaged over.
func (u *Unit) worldSize() int { return groupSize(u.group) * groupSize(u.options.Replicas) }

// addToShards accumulates reduced gradients in the gradients of the shards, and releases them. While the all-reduce is deferred,
// it accumulates them in partialGradient.
func (u *Unit) addToShards(params []*parameter, outs []*core.Tensor) error {
	for i, p := range params {
		s, g := p.shard(), outs[i]
		if u.defersAllReduce() {
			if p.partialGradient == nil {
				p.partialGradient = g
				continue
			}
			if err := op.AddInPlace(p.partialGradient, g).Err(); err != nil {
				return err
			}
			g.Release()
			continue
		}
		grad := op.ToDevice(op.To(g, s.DType()), s.Device())
		if err := grad.Err(); err != nil {
			return err
		}
		if p.holds() {
			if err := p.hold(grad.Detach().Keep()); err != nil {
				return err
			}
		} else if hooks := p.gradientHooks(); len(hooks) > 0 {
			if err := p.runGradientHooks(grad.Detach().Keep(), hooks); err != nil {
				return err
			}
		} else if err := p.accumulate(grad); err != nil {
			return err
		}
		g.Release()
	}
	return nil
}

// accumulate adds a reduced gradient to the gradient of the shard.
func (p *parameter) accumulate(g *core.Tensor) error {
	s := p.shard()
	if old := s.Grad(); old != nil {
		return op.AddInPlace(old, g).Err()
	}
	own := g.Detach().Keep()
	own.Storage().SetCategory(core.Gradient)
	s.SetGrad(own)
	return nil
}

// allReduce averages the gradients of replicated parameters.
func (u *Unit) allReduce(params []*parameter) error {
	if groupSize(u.options.Replicas) == 1 && u.divideFactor == 0 || u.defersAllReduce() {
		return nil
	}
	list := make([]*core.Tensor, len(params))
	return u.tree.onSideStream(u.device, func() error {
		for i, p := range params {
			p.saveReducedGradient()
			g := p.full().Grad()
			list[i] = g
			if g == nil {
				list[i] = op.ZerosLike(p.full().Detach(), op.TensorOptions{}).Keep()
			} else if !g.Contiguous() || g.RequiresGrad() {
				list[i] = op.Contiguous(op.Clone(g)).Keep()
			}
			if list[i] != g {
				if err := list[i].Err(); err != nil {
					return err
				}
				p.full().SetGrad(list[i])
			}
		}
		reduceOp := collective.Avg
		if u.divideFactor != 0 {
			reduceOp = collective.Sum
		}
		if u.options.Replicas != nil {
			if err := u.tree.track(u.tree.channel(u.options.Replicas).For(u.purpose).AllReduceMany(list, reduceOp)); err != nil {
				return err
			}
		}
		for i, p := range params {
			if u.divideFactor != 0 {
				if err := op.DivInPlace(list[i], core.Num(u.divideFactor)).Err(); err != nil {
					return err
				}
			}
			if err := p.addReducedGradient(); err != nil {
				return err
			}
		}
		return nil
	})
}

// reduceGroups are the groups over which a unit's gradients are reduced, in this order; nil ones are skipped.
type reduceGroups [2]*collective.Group

func (u *Unit) reduceGroups() reduceGroups {
	if u.defersAllReduce() {
		return reduceGroups{u.group}
	}
	return reduceGroups{u.group, u.options.Replicas}
}

// dropMissingGradients runs at the end of backward. Reductions count missing gradients as zeros. If no rank has a gradient for a
// parameter, its reduced gradient is dropped.
func (t *Tree) dropMissingGradients() error {
	var order []reduceGroups
	params := map[reduceGroups][]*parameter{}
	for _, u := range t.units {
		if !u.reduceStarted {
			continue
		}
		u.reduceStarted = false
		for _, p := range u.params {
			if p.full().RequiresGrad() {
				groups := u.reduceGroups()
				if params[groups] == nil {
					order = append(order, groups)
				}
				params[groups] = append(params[groups], p)
			}
		}
	}
	for _, groups := range order {
		if err := t.dropMissingGradientsIn(groups, params[groups]); err != nil {
			return err
		}
	}
	return nil
}

// checkSameParameters returns an error unless every rank's payload is about n parameters, as this rank's is.
func checkSameParameters(g *collective.Group, payloads [][]byte, n int) error {
	for i, payload := range payloads {
		if len(payload) != n {
			return core.Errorf(core.DistributedError, "fsdp", "rank %d has averaged the gradients of %d parameters in the last backward pass, rank %d those of %d; want the same units and trained parameters on each rank",
				g.Rank(), n, i, len(payload))
		}
	}
	return nil
}

// dropMissingGradientsIn is dropMissingGradients for parameters that are reduced over the same groups. The ranks exchange which
// parameters have a gradient, first in the shard group, then among the replicas. A rank waits for the result only if it misses
// some gradient: otherwise none is missing on all ranks.
func (t *Tree) dropMissingGradientsIn(groups reduceGroups, params []*parameter) error {
	used, missing := make([]byte, len(params)), false
	for i, p := range params {
		missing = missing || p.gradientMissing
		if !p.gradientMissing {
			used[i] = 1
		}
	}
	for _, g := range groups {
		if g == nil {
			continue
		}
		w := t.channel(g).For("the gradients of "+params[0].unit.purpose).StartExchange("which parameters have a gradient", slices.Clone(used))
		verify := func() error { return checkSameParameters(g, w.Payloads(), len(params)) }
		if !missing {
			t.pendingWorks[0] = append(t.pendingWorks[0], pendingWork{w, verify})
			continue
		}
		if err := w.Wait(); err != nil {
			return err
		}
		if err := verify(); err != nil {
			return err
		}
		for _, payload := range w.Payloads() {
			for i := range payload {
				used[i] |= payload[i]
			}
		}
	}
	for i, p := range params {
		switch {
		case !p.gradientMissing:
		case used[i] != 0:
			if err := p.runPostHooks(); err != nil {
				return err
			}
		case !p.hadGradient:
			p.shard().SetGrad(nil)
			p.partialGradient.Release()
			p.partialGradient = nil
		}
	}
	return nil
}
