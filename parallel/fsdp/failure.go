package fsdp

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/collective"
)

// A step succeeds on all ranks or fails on all, as in package ddp. Each tree has its own channel of each group for the collectives of its
// passes. A rank whose pass fails, such as for lack of memory, revokes the channels. The collectives of the other ranks then fail with that
// error: at the latest the exchange at the end of backward, where all ranks wait for each other. Each rank drops the gradients of the step,
// because some may not be averaged, and creates new channels. The next forward pass begins a new step on all ranks.
//
// What a failed step has already changed stays changed: buffers that its forward pass has updated, and parameters that optimisers in hooks
// have updated. Ranks may differ in which these are. If the step is repeated, they are updated again. An update whose input had failed does
// not run, but marks its shard or buffer as failed. Failing the step makes those valid again, with the values from before the pass. The
// optimiser then takes the skipped step back: its states and its count of steps are those from before, too.

// A passGroup is a group of ranks with the channels that a tree's passes use on it.
type passGroup struct {
	group *collective.Group // the units' group
	tree  *collective.Group // the tree's channel of group
	now   *collective.Group // a channel of tree, replaced when a pass fails
	used  bool              // a collective was started since the ranks last met at the end of a backward pass
	end   *collective.Work  // the exchange at the end of this backward pass
}

// channel returns the channel of group g for a collective of a pass.
func (t *Tree) channel(g *collective.Group) *collective.Group {
	c := t.passGroup(g)
	c.used = g.Size() > 1
	c.now.SetTimeout(g.Timeout())
	return c.now
}

// passGroup returns the tree's channels of group g, and creates them if need be.
func (t *Tree) passGroup(g *collective.Group) *passGroup {
	i := slices.IndexFunc(t.groups, func(c *passGroup) bool { return c.group == g })
	if i < 0 {
		own := g.Channel()
		i, t.groups = len(t.groups), append(t.groups, &passGroup{group: g, tree: own, now: own.Channel()})
	}
	return t.groups[i]
}

// SetBuffers sets the tensors that forward passes change, such as running averages. If a step fails and an update of a buffer was skipped,
// the buffer keeps its previous value.
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

// dropBuffers releases the tensors of [Tree.SetBuffers].
func (t *Tree) dropBuffers() {
	for _, b := range t.buffers {
		b.Release()
	}
	t.buffers = nil
}

// FailForward reports the error that ended the unit's forward pass early. [Unit.PostForward] must follow.
func (u *Unit) FailForward(cause error) error {
	return u.Use(func() {
		if u.tree != nil {
			u.tree.setForwardErr(cause)
		}
	})
}

// FailStep fails the step on all ranks because of cause, which arose between its passes or after them, if it has not failed yet.
func (u *Unit) FailStep(cause error) error {
	return u.Use(func() {
		if t := u.tree; t != nil && t.stepErr == nil {
			t.fail(cause)
		}
	})
}

// meet waits at the end of a backward pass until all ranks of each group have reached it, so that no rank takes an optimiser step if one
// has failed. It does not wait for ranks that run their backward passes in another order: the next forward pass waits for those.
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
			t.lateEnds = append(t.lateEnds, c.end)
		case !over:
			return false, nil
		case c.end.Err() != nil:
			return true, c.end.Err()
		}
		c.end = nil
	}
	t.openRuns, t.completedRun = without(t.openRuns, run), run
	return true, nil
}

// meetLate waits for the ranks that the last backward pass did not wait for.
func (t *Tree) meetLate() error {
	late := t.lateEnds
	t.lateEnds = nil
	for _, w := range late {
		w.WaitForRanks()
		if err := w.Err(); err != nil {
			return err
		}
	}
	return nil
}

// backwardFailed runs when a backward pass through the parameter has failed.
func (p *parameter) backwardFailed(cause error) {
	if t := p.unit.tree; t != nil {
		t.backwardFailed(cause)
	}
}

// backwardFailed fails the step when a backward pass through the tree's parameters has failed with cause.
func (t *Tree) backwardFailed(cause error) {
	run := autograd.CurrentRun()
	t.guard.Later(func() {
		if t.stepErr != nil || slices.Contains(t.openRuns, run) || run == t.completedRun {
			return // the step has failed already, or backwardClosed will fail it, or all ranks have completed the pass
		}
		if kind, _ := core.KindOf(cause); t.completedRun != nil && kind != core.MemoryError {
			return // a wrong call after the pass, which other ranks need not know of
		}
		t.fail(cause)
	})
}

// fail fails the step because of cause: at once, or at the end of a running forward pass.
func (t *Tree) fail(cause error) {
	if t.forwardDepth > 0 && !t.recomputing() {
		t.setForwardErr(cause)
	} else {
		t.failStep(cause)
	}
}

// setForwardErr records the first error of a forward pass; nil is ignored. It does nothing while a forward pass is recomputed,
// because then the backward pass fails.
func (t *Tree) setForwardErr(err error) {
	if t.forwardErr == nil && !t.recomputing() {
		t.forwardErr = err
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

// failStep fails the step on all ranks because of cause, or on this rank after another rank has. It does not wait. Gradients are dropped, and
// shards and buffers whose updates were skipped become valid again. Errors of streams that led to cause count as reported.
func (t *Tree) failStep(cause error) {
	t.forwardErr = nil
	if t.runsAlone() {
		return
	}
	t.abandonBackward()
	for _, c := range t.groups {
		c.now.Revoke(cause)
		c.now, c.used, c.end = c.tree.Channel(), false, nil
	}
	for _, u := range t.units {
		u.dropStep()
		core.TakeReported(u.stream, cause)
	}
	for _, s := range t.streams {
		core.TakeReported(s, cause)
	}
	for _, b := range t.buffers {
		b.Recover()
	}
	t.preForwardOrder, t.newPreForwardOrder, t.postForwardOrder = nil, nil, nil // other ranks may have recorded another part of the order
	t.pendingWorks, t.lateEnds = [2][]pendingWork{}, nil                        // collectives of the step before wrote the same gradients
	kind, ok := core.KindOf(cause)
	if !ok {
		kind = core.StateError
	}
	t.stepErr = core.Errorf(kind, "fsdp", "the step has failed, and its gradients were dropped on every rank: begin it anew with a forward pass (%w)", cause)
}

// runsAlone reports whether passes have no collectives with other ranks.
func (t *Tree) runsAlone() bool {
	return !slices.ContainsFunc(t.units, func(u *Unit) bool {
		return groupSize(u.group) > 1 || groupSize(u.options.Replicas) > 1 && u.reduceGradients
	})
}

// dropStep drops the gradients and full parameters that the unit has from a failed step, and recovers shards whose update was skipped.
func (u *Unit) dropStep() {
	if u.activeForwards == 0 && !u.showsCopies() {
		u.useShards()
		u.freeFull() // also after Unshard, whose all-gather may have failed
	}
	u.reduceStarted, u.unreduced = false, false
	for _, p := range u.params {
		p.shard().SetGrad(nil)
		if !u.replicated() {
			p.full().SetGrad(nil)
		}
		for _, x := range []**core.Tensor{&p.partialGradient, &p.reducedGradient, &p.postForwardShard, &p.held} {
			(*x).Release()
			*x = nil
		}
		p.unreduced = false
		// An optimiser skips its update if the gradient has failed. The shard is then unchanged, but marked as failed.
		p.shard().Recover()
	}
}
