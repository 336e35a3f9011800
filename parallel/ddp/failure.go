package ddp

import (
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/collective"
)

// A pass counts on all ranks or on none. A rank whose backward pass fails, or whose forward pass lacks memory, revokes the channel on which the
// pass is reduced. So the collectives of the other ranks fail with its error, at the latest the one at the end of the pass, where
// backward waits for all ranks. Each rank drops its gradients, which may be averages or not, and goes on with a new channel: the next
// forward pass begins a step on all of them.

// failed is told that a backward pass that comes to the parameters is over without having come to its end.
func (r *Reducer) failed(cause error) {
	run := autograd.CurrentRun()
	r.guard.Later(func() {
		if !r.expect || r.mode.stale() {
			return
		}
		if s := r.pass; s != nil && s.done {
			// The pass had its end. A run after it is another pass on all ranks, if it is one: a call that is wrong is none.
			if kind, _ := core.KindOf(cause); s.run == run || kind != core.MemoryError {
				return
			}
		}
		r.giveUp(cause)
	})
}

// reducers are those of each rank. A step may have passes of several of them.
var reducers struct {
	sync.Mutex // held while a rank gives passes up, so that another finds them all given up if it finds one
	of         map[*core.Context][]weak.Pointer[Reducer]
}

// enlist makes r one of its rank's reducers, until delist.
func (r *Reducer) enlist() {
	core.Lock(&reducers.Mutex)
	defer reducers.Unlock()
	if reducers.of == nil {
		reducers.of = map[*core.Context][]weak.Pointer[Reducer]{}
	}
	r.home = core.CurrentContext()
	reducers.of[r.home] = append(reducers.of[r.home], weak.Make(r))
}

func (r *Reducer) delist() {
	core.Lock(&reducers.Mutex)
	defer reducers.Unlock()
	list := slices.DeleteFunc(reducers.of[r.home], func(p weak.Pointer[Reducer]) bool { return p.Value() == nil || p.Value() == r })
	if reducers.of[r.home] = list; len(list) == 0 {
		delete(reducers.of, r.home)
	}
}

// siblings returns the reducers of r's rank. The list is locked.
func (r *Reducer) siblings() (list []*Reducer) {
	for _, p := range reducers.of[r.home] {
		if x := p.Value(); x != nil {
			list = append(list, x)
		}
	}
	return list
}

// giveUp ends the pass on all ranks because of cause, or on this one after another rank has; and with it the passes of the rank's other
// reducers that are not sure to count, which are of the same step. It waits for nobody.
func (r *Reducer) giveUp(cause error) {
	core.Lock(&reducers.Mutex)
	defer reducers.Unlock()
	r.drop(cause)
	for _, x := range r.siblings() {
		if x == r {
			continue
		}
		x.guard.Later(func() {
			if x.open != nil && !x.open.Done() || x.group.Revoked() != nil {
				x.drop(cause)
			}
		})
	}
}

// drop revokes the channel and forgets the pass and its gradients.
func (r *Reducer) drop(cause error) {
	r.group.Revoke(cause)
	r.group = r.model.Channel()
	for _, b := range r.buffers { // as they were before the pass, also where the pass was to change them
		b.Tensor.Recover(collective.IsNotStarted)
	}
	r.works = [2][]*collective.Work{} // works of the pass before have the same buffers, so they would report this failure too
	if r.pass != nil {
		r.pass.free()
	}
	for _, b := range r.buckets {
		b.group = r.group.For(b.purpose)
		b.dropAbsent()
		b.free() // collectives on their way may still write to the buffer
	}
	for _, p := range r.params {
		if p.active {
			p.Tensor.SetGrad(nil)
		}
	}
	r.pass, r.open, r.expect, r.samples = nil, nil, false, 0
	r.failure = core.Errorf(core.StateError, "ddp", "the step has failed, and its gradients were dropped on every rank: begin it anew with a forward pass (%w)", cause)
}

// checked gives the pass up that a forward pass was to begin if err ends it on all ranks, and returns err.
func (r *Reducer) checked(err error) error {
	if err != nil && (r.group.Revoked() != nil || r.expect && collective.IsNotStarted(err)) {
		r.giveUp(err)
	}
	return err
}

// ForwardFailed is told that the forward pass that [Reducer.Forward] has begun is over because of cause. If memory was lacking or ranks did
// not meet, the pass fails on all ranks. Of another cause, such as a wrong argument, they need not know: this rank may begin it anew.
func (r *Reducer) ForwardFailed(cause error) {
	r.guard.Later(func() {
		if r.expect && r.pass == nil && collective.IsNotStarted(cause) {
			r.giveUp(cause)
		}
	})
}

// await waits, for at most limit if it is not negative, until all ranks have come to the end of the pass. Unless this rank must know, it
// does not wait for ranks that go backward in another order: see [collective.Work.WaitForRanksUnlessCrossed].
func await(end *collective.Work, limit time.Duration, must bool) (over, crossed bool) {
	switch {
	case !must:
		return end.WaitForRanksUnlessCrossed(limit)
	case limit < 0:
		end.WaitForRanks()
		return true, false
	}
	over, _ = end.ArrivedOn(limit)
	return over, false
}

// closeOthers waits, at the end of a backward pass, for the ends of the rank's open ones: modules in different groups may go backward in
// another order on each rank, which only the last of them can wait for.
func (r *Reducer) closeOthers(limit time.Duration) (over bool, err error) {
	core.Lock(&reducers.Mutex)
	list := r.siblings()
	reducers.Unlock()
	for _, x := range list {
		if x.open == nil {
			continue
		}
		switch over, crossed := await(x.open, limit, false); {
		case crossed:
		case !over:
			return false, nil
		default:
			if err := x.close(); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// close ends an open pass, whose end it waits for, and returns the error that a rank has ended it with.
func (r *Reducer) close() error {
	if r.open == nil {
		return nil
	}
	r.open.WaitForRanks()
	if err := r.open.Err(); err != nil {
		r.giveUp(err)
		return err
	}
	r.learnOrder(r.open)
	r.open = nil
	return nil
}
