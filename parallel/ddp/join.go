package ddp

import (
	"errors"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// JoinOptions say how ranks with unequal numbers of batches train together.
type JoinOptions struct {
	// DivideByActive divides sums by the number of ranks that still have batches, and not by the number of all.
	DivideByActive bool
	// Throw ends the training of every rank with an error as soon as one has no more batches.
	Throw bool
}

// A joinState is a rank's state in a join.
type joinState struct {
	options      JoinOptions
	active       int // ranks that have a batch in this step
	root         int // the first of them, or of those in the last step that had any
	synced       bool
	hookRequests []hookRequest
	exhausted    bool // this rank has run out of batches
}

type hookRequest struct {
	request *autograd.Request
	then    func(answer []*core.Tensor) error
}

// What a rank announces before each step.
const (
	announceActive = 1 << iota
	announceSync
)

// Join runs body, the training on this rank's batches. It then takes part in the steps of ranks that have more batches, with zero
// gradients. At the end, all ranks get the parameters and buffers of a rank that had the most batches. Every rank calls Join.
// Ranks must not run other collectives on the group in it.
func (r *Reducer) Join(o JoinOptions, body func() error) error {
	if err := r.JoinBegin(o); err != nil {
		return err
	}
	if err := body(); err != nil {
		r.join = nil
		return err
	}
	q, err := r.JoinEnd(nil)
	if err == nil && q != nil {
		r.join = nil
		err = core.Errorf(core.StateError, "join", "the communication hook belongs to another language, whose join must be used")
	}
	return err
}

// JoinBegin begins what [Reducer.Join] does.
func (r *Reducer) JoinBegin(o JoinOptions) error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	switch {
	case r.join != nil:
		return core.Errorf(core.StateError, "join", "the rank is in a join already")
	case r.mode.isAsync():
		return core.Errorf(core.StateError, "join", "ranks with unequal numbers of batches need no join in mode %v", r.mode)
	}
	r.join = &joinState{options: o, active: r.group.Size()}
	return nil
}

// JoinAbandon ends a join on this rank after an error, without taking part in the steps of other ranks.
func (r *Reducer) JoinAbandon() { r.guard.Later(func() { r.join = nil }) }

// JoinEnd ends what [Reducer.JoinBegin] began, when the rank has no more batches. It waits for those that have. Where a
// communication hook belongs to another language, it returns a request for it, and is called again with the answer; it has
// ended when it returns none.
func (r *Reducer) JoinEnd(answer []*core.Tensor) (*autograd.Request, error) {
	if err := r.guard.Enter("ddp"); err != nil {
		return nil, err
	}
	defer r.guard.Leave()
	j := r.join
	if j == nil {
		return nil, core.Errorf(core.StateError, "join", "the rank is in no join")
	}
	fail := func(err error) (*autograd.Request, error) {
		r.join = nil
		return nil, err
	}
	if !j.exhausted {
		if err := r.checkFinished(); err != nil {
			return fail(err)
		}
		j.exhausted = true
	} else if len(j.hookRequests) > 0 {
		a := j.hookRequests[0]
		j.hookRequests = j.hookRequests[1:]
		if err := a.then(answer); err != nil && !r.recovers(err) {
			return fail(err)
		}
	}
	for {
		if len(j.hookRequests) > 0 {
			return j.hookRequests[0].request, nil
		}
		switch err := r.joinedStep(); {
		case err != nil && !r.recovers(err):
			return fail(err)
		case err == nil && j.active == 0:
			r.join = nil
			return nil, r.broadcastFinal(j.root)
		}
	}
}

// recovers reports whether err comes from a rank whose pass has failed. This rank then drops the pass and stays in the join.
func (r *Reducer) recovers(err error) bool {
	if r.group.Revoked() == nil {
		return false
	}
	r.join.hookRequests = nil
	r.abort(err)
	return true
}

// joinedStep ends the step that this rank, without a batch, takes part in, and begins the next one.
func (r *Reducer) joinedStep() error {
	j := r.join
	if s := r.pass; s != nil && s.joined && !s.done {
		if _, err := r.finish(-1); err != nil {
			return err
		}
	}
	if err := j.announce(r, false); err != nil {
		return err
	}
	if j.active == 0 || !j.synced {
		return nil
	}
	return r.joinedPass()
}

// announce tells the other ranks whether this rank has a batch, and learns how many ranks have one.
func (j *joinState) announce(r *Reducer, active bool) error {
	var mine byte
	if active {
		mine |= announceActive
		if r.syncBackward {
			mine |= announceSync
		}
	}
	all, err := r.groupFor("who has a batch").Exchange([]byte{mine})
	if err != nil {
		return err
	}
	j.active, j.synced = 0, false
	first, gone := -1, -1
	for i, b := range all {
		if len(b) != 1 {
			return core.Errorf(core.DistributedError, "join", "rank %d did something else than begin a step", i)
		}
		if b[0]&announceActive == 0 {
			if gone < 0 {
				gone = i
			}
			continue
		}
		j.active++
		if first < 0 {
			first = i
		}
		j.synced = j.synced || b[0]&announceSync != 0
	}
	if j.active > 0 {
		j.root = first
	}
	if j.options.Throw && gone >= 0 && j.active > 0 {
		r.join = nil
		return core.Errorf(core.DistributedError, "join", "rank %d has no more batches, and training was to end with the first that has none", gone)
	}
	return nil
}

// joinedPass launches the all-reduces of a step with zero gradients, because this rank has no batch.
func (r *Reducer) joinedPass() error {
	if err := r.prepare(); err != nil {
		return err
	}
	r.samples = 0
	if err := r.beginPass(true); err != nil {
		return err
	}
	for i, p := range r.params {
		if p.active {
			r.pass.ready[i] = true
		}
	}
	for _, b := range r.buckets {
		r.pass.remaining -= b.pending
		b.pending = 0
	}
	return r.launchReady()
}

// broadcastFinal gives all ranks the parameters and buffers of a rank that trained to the end.
func (r *Reducer) broadcastFinal(root int) error {
	err := r.Wait()
	var list []*core.Tensor
	for _, p := range r.params {
		list = append(list, p.Tensor)
	}
	for _, b := range r.buffers {
		list = append(list, b.Tensor)
	}
	return errors.Join(err, r.groupFor("the values after a join").BroadcastMany(list, root).Wait())
}
