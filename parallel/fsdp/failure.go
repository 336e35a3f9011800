package fsdp

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/collective"
)

// A step counts on all ranks or on none, as in package ddp. The collectives of a tree's passes go through a channel of each group. A rank
// whose pass fails, such as for lack of memory, revokes the channels. So the collectives of the other ranks fail with its error, at the
// latest the one at the end of backward, where all ranks wait for each other. Each rank drops the gradients of the step, which may be
// averages or not, and makes new channels. The next forward pass begins a step on all ranks.
//
// An optimiser that steps in hooks, before backward has ended, has changed some parameters by then.

// A passGroup is a group of ranks that a tree's passes have collectives on.
type passGroup struct {
	group *collective.Group // the units'
	tree  *collective.Group // a channel of it, of this tree
	now   *collective.Group // a channel of that, until a pass fails
	used  bool              // since the ranks last met at the end of a backward pass
	end   *collective.Work  // where they meet now
}

// channel returns the handle on a group for a collective of a pass.
func (t *Tree) channel(g *collective.Group) *collective.Group {
	c := t.passGroup(g)
	c.used = g.Size() > 1
	c.now.SetTimeout(g.Timeout())
	return c.now
}

func (t *Tree) passGroup(g *collective.Group) *passGroup {
	i := slices.IndexFunc(t.groups, func(c *passGroup) bool { return c.group == g })
	if i < 0 {
		own := g.Channel()
		i, t.groups = len(t.groups), append(t.groups, &passGroup{group: g, tree: own, now: own.Channel()})
	}
	return t.groups[i]
}

// SetBuffers says which tensors, such as running averages, forward passes change. If a step fails that was to change one and could
// not, the tensor keeps what it had.
func (t *Tree) SetBuffers(list []*core.Tensor) error {
	if err := t.guard.Enter("fsdp"); err != nil {
		return err
	}
	defer t.guard.Leave()
	t.dropBuffers()
	for _, b := range list {
		t.buffers = append(t.buffers, b.Detach().Keep())
	}
	return nil
}

func (t *Tree) dropBuffers() {
	for _, b := range t.buffers {
		b.Release()
	}
	t.buffers = nil
}

// FailForward says why the forward pass that the unit is in does not come to its end. [Unit.PostForward] must follow.
func (u *Unit) FailForward(cause error) error {
	return u.Use(func() {
		if u.tree != nil {
			u.tree.faulty(cause)
		}
	})
}

// meet waits, at the end of a backward pass, until all ranks have come there, one group after the other: none may take a step if one
// has failed. It does not wait for ranks that go backward in another order; the next forward pass does.
func (t *Tree) meet(run *autograd.Run, limit time.Duration) (over bool, err error) {
	for _, c := range t.groups {
		if c.used {
			c.used, c.end = false, c.now.For("the end of a step").StartExchange("backward", nil)
		}
		if c.end == nil {
			continue
		}
		switch over, crossed := c.end.WaitForRanksUnlessCrossed(limit); {
		case crossed:
			t.late = append(t.late, c.end)
		case !over:
			return false, nil
		case c.end.Err() != nil:
			return true, c.end.Err()
		}
		c.end = nil
	}
	t.open, t.counted = without(t.open, run), run
	return true, nil
}

// meetLate waits for the ranks that the last backward pass has not waited for.
func (t *Tree) meetLate() error {
	late := t.late
	t.late = nil
	for _, w := range late {
		w.WaitForRanks()
		if err := w.Err(); err != nil {
			return err
		}
	}
	return nil
}

// backwardFailed is told that a backward pass that comes to the parameter is over without having come to its end.
func (p *parameter) backwardFailed(cause error) {
	if t := p.unit.tree; t != nil {
		t.backwardFailed(cause)
	}
}

// backwardFailed is told that a backward pass that comes to the parameters is over without having come to its end.
func (t *Tree) backwardFailed(cause error) {
	run := autograd.CurrentRun()
	t.guard.Later(func() {
		if t.failure != nil || slices.Contains(t.open, run) || run == t.counted {
			return // it was given up before, or backwardClosed does it, or it had come to its end on all ranks
		}
		if kind, _ := core.KindOf(cause); t.counted != nil && kind != core.MemoryError {
			return // a call that is wrong, after the pass
		}
		t.fail(cause)
	})
}

// fail gives the step up because of cause: at once, or when the forward pass that the rank is in has ended.
func (t *Tree) fail(cause error) {
	if t.depth > 0 && !t.again() {
		t.faulty(cause)
	} else {
		t.giveUp(cause)
	}
}

// faulty is told what keeps the forward pass from its end; nil is nothing. In the midst of a backward pass, that fails.
func (t *Tree) faulty(err error) {
	if t.fault == nil && !t.again() {
		t.fault = err
	}
}

// revoked returns the error with which another rank has ended the step, or nil.
func (t *Tree) revoked() error {
	for _, c := range t.groups {
		if err := c.now.Revoked(); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends the step on all ranks because of cause, or on this one after another rank has. It waits for nobody.
func (t *Tree) giveUp(cause error) {
	t.fault = nil
	if t.alone() {
		return
	}
	t.abandon()
	for _, c := range t.groups {
		c.now.Revoke(cause)
		c.now, c.used, c.end = c.tree.Channel(), false, nil
	}
	for _, u := range t.units {
		u.forget()
	}
	for _, b := range t.buffers {
		b.Recover(collective.IsNotStarted)
	}
	t.order, t.coming, t.ended = nil, nil, nil // which other ranks may have in part
	t.works, t.late = [2][]awaited{}, nil      // those of the step before have the same gradients
	kind, ok := core.KindOf(cause)
	if !ok {
		kind = core.StateError
	}
	t.failure = core.Errorf(kind, "fsdp", "the step has failed, and its gradients were dropped on every rank: begin it anew with a forward pass (%w)", cause)
}

// alone reports whether other ranks take no part in passes.
func (t *Tree) alone() bool {
	return !slices.ContainsFunc(t.units, func(u *Unit) bool {
		return sizeOf(u.group) > 1 || sizeOf(u.options.Replicas) > 1 && u.sync
	})
}

// forget drops what the unit has of a step that has failed.
func (u *Unit) forget() {
	if u.using == 0 && !u.lends() {
		u.shut()
		u.empty() // also if it is gathered by hand: the gather may have failed
	}
	u.reduced, u.touched = false, false
	for _, p := range u.params {
		p.shard().SetGrad(nil)
		if !u.whole() {
			p.full().SetGrad(nil)
		}
		for _, x := range []**core.Tensor{&p.partial, &p.before, &p.second} {
			(*x).Release()
			*x = nil
		}
		p.local = false
		p.shard().Recover(collective.IsNotStarted) // a hook may have begun an optimiser's step with a gradient that did not come
	}
}
