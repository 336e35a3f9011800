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

// joining is a rank's part in a join.
type joining struct {
	options JoinOptions
	active  int // ranks that have a batch in this step
	root    int // the first of them, or of those in the last step that had any
	synced  bool
	asked   []asked
	idle    bool // this rank has no more batches
}

type asked struct {
	request *autograd.Request
	then    func(answer []*core.Tensor) error
}

// What a rank announces before each step.
const (
	announceActive = 1 << iota
	announceSync
)

// Join runs body, the training on this rank's batches, and then takes part in the steps of ranks that have more, with
// gradients of zero. In the end the parameters and buffers of a rank that had the most batches go to all. Every rank calls
// it. No rank may make other collectives on the group in it.
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
	case r.mode.stale():
		return core.Errorf(core.StateError, "join", "ranks with unequal numbers of batches need no join in mode %v", r.mode)
	}
	r.join = &joining{options: o, active: r.group.Size()}
	return nil
}

// JoinAbandon ends a join on this rank without the steps of others, after an error.
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
	if !j.idle {
		if err := r.unfinished(); err != nil {
			return fail(err)
		}
		j.idle = true
	} else if len(j.asked) > 0 {
		a := j.asked[0]
		j.asked = j.asked[1:]
		if err := a.then(answer); err != nil && !r.goesOn(err) {
			return fail(err)
		}
	}
	for {
		if len(j.asked) > 0 {
			return j.asked[0].request, nil
		}
		switch err := r.shadowStep(); {
		case err != nil && !r.goesOn(err):
			return fail(err)
		case err == nil && j.active == 0:
			r.join = nil
			return nil, r.settle(j.root)
		}
	}
}

// goesOn reports whether err is that of a rank whose pass has failed. The ranks that have batches repeat the step or leave it out, and
// those that have none follow.
func (r *Reducer) goesOn(err error) bool {
	if r.group.Revoked() == nil {
		return false
	}
	r.join.asked = nil
	r.giveUp(err)
	return true
}

// shadowStep ends the step of the other ranks that this one, without a batch, takes part in, and begins the next.
func (r *Reducer) shadowStep() error {
	j := r.join
	if s := r.pass; s != nil && s.shadow && !s.done {
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
	return r.shadow()
}

// announce tells the other ranks whether this one has a batch, and learns how many have.
func (j *joining) announce(r *Reducer, active bool) error {
	var mine byte
	if active {
		mine |= announceActive
		if r.expect {
			mine |= announceSync
		}
	}
	all, err := r.to("who has a batch").Exchange([]byte{mine})
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

// shadow takes part in a step without a batch.
func (r *Reducer) shadow() error {
	if err := r.prepare(); err != nil {
		return err
	}
	r.samples = 0
	if err := r.begin(true); err != nil {
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

// settle makes parameters and buffers those of a rank that trained to the end.
func (r *Reducer) settle(root int) error {
	err := r.Wait()
	var list []*core.Tensor
	for _, p := range r.params {
		list = append(list, p.Tensor)
	}
	for _, b := range r.buffers {
		list = append(list, b.Tensor)
	}
	return errors.Join(err, r.to("the values after a join").BroadcastMany(list, root).Wait())
}
