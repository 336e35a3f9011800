package ddp

import (
	"errors"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// JoinOptions configure [Reducer.Join], where ranks may have different numbers of batches.
type JoinOptions struct {
	// DivideByActive divides sums by the number of ranks that have a batch in the step, instead of all ranks.
	DivideByActive bool
	// Throw returns an error on every rank as soon as one rank has no more batches.
	Throw bool
}

// A joinState is a rank's state in a join. A rank that has run out of batches shadows the others: it launches their collectives, with zeros.
type joinState struct {
	options      JoinOptions
	active       int  // ranks that have a batch in this step
	root         int  // the highest active rank of this step, or of the last step that had one: PyTorch's choice
	synced       bool // a rank synchronises this step
	exhausted    bool // this rank has no more batches
	hookRequests []hookRequest
}

// A hookRequest is a bucket of a shadowed step that waits for a communication hook of another language.
type hookRequest struct {
	request *autograd.Request
	then    func(answer []*core.Tensor) error
}

// Flags that a rank announces before each step.
const (
	announceActive = 1 << iota
	announceSync
)

// Join runs body, the training on this rank's batches. It then takes part in the steps of ranks that have more batches, with zero
// gradients. At the end, all ranks get the parameters of a rank that had the most batches, and the buffers too unless they stay as
// each rank has them. Every rank calls Join.
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

// JoinBegin begins a join, for other languages: see [Reducer.Join].
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

// JoinEnd ends a join when this rank has no more batches, and waits for the ranks that have. With a communication hook of another language
// it returns a request for the hook; call it again with the answer, until it returns nil.
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
		if err := r.checkPriorReduction(); err != nil {
			return fail(err)
		}
		j.exhausted = true
	} else if len(j.hookRequests) > 0 {
		a := j.hookRequests[0]
		j.hookRequests = j.hookRequests[1:]
		if err := a.then(answer); err != nil && !r.recoverFrom(err) {
			return fail(err)
		}
	}
	for {
		if len(j.hookRequests) > 0 {
			return j.hookRequests[0].request, nil
		}
		switch err := r.shadowStep(); {
		case err != nil && !r.recoverFrom(err):
			return fail(err)
		case err == nil && j.active == 0:
			r.join = nil
			return nil, errors.Join(r.Wait(), r.broadcastModel(j.root, r.syncsBuffers(), "the values after a join"))
		}
	}
}

// recoverFrom drops the pass if err comes from a pass that a rank has failed, and reports whether it did. This rank then stays in the join.
func (r *Reducer) recoverFrom(err error) bool {
	if r.group.Revoked() == nil {
		return false
	}
	r.join.hookRequests = nil
	r.abort(err)
	return true
}

// shadowStep ends the last shadowed step and begins the next.
func (r *Reducer) shadowStep() error {
	j := r.join
	if current := r.pass; current != nil && current.shadow && !current.done {
		if _, err := r.finishPass(-1); err != nil {
			return err
		}
	}
	if err := j.announce(r, false); err != nil {
		return err
	}
	if j.active == 0 || !j.synced {
		return nil
	}
	return r.shadowPass()
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
	gone := -1
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
		j.root = i
		j.synced = j.synced || b[0]&announceSync != 0
	}
	if j.options.Throw && gone >= 0 && j.active > 0 {
		r.join = nil
		return core.Errorf(core.DistributedError, "join", "rank %d has no more batches, and training was to end with the first that has none", gone)
	}
	return nil
}

// shadowPass launches the all-reduces of a step with zero gradients.
func (r *Reducer) shadowPass() error {
	if err := r.preparePass(); err != nil {
		return err
	}
	r.pendingSamples = 0
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
	return r.reduceReadyBuckets()
}
