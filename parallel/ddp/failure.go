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

// A pass succeeds on all ranks or fails on all ranks. A rank revokes the channel of the pass if its backward pass fails, or if its
// forward pass runs out of memory. The collectives of the other ranks then fail with the same error, at the latest the exchange at the
// end of the pass. Each rank drops its gradients, since some may be averaged and some not, and opens a new channel. The next forward
// pass starts a new step on all ranks.

// backwardFailed is called when a backward pass that reaches the parameters ends with an error.
func (r *Reducer) backwardFailed(cause error) {
	run := autograd.CurrentRun()
	r.guard.Later(func() {
		if !r.syncBackward || r.mode.isAsync() {
			return
		}
		if current := r.pass; current != nil && current.done {
			// The reduction had ended. Only a later backward pass that ran out of memory has to fail on all ranks. A wrong call fails
			// on this rank alone.
			if kind, _ := core.KindOf(cause); current.run == run || kind != core.MemoryError {
				return
			}
		}
		r.abort(cause)
	})
}

// reducers holds the reducers of each rank. A step may have passes of several of them.
var reducers struct {
	sync.Mutex // held while a rank drops its passes, so that another thread sees all of them dropped or none
	of         map[*core.Context][]weak.Pointer[Reducer]
}

// register adds r to the reducers of its rank, until unregister.
func (r *Reducer) register() {
	core.Lock(&reducers.Mutex)
	defer reducers.Unlock()
	if reducers.of == nil {
		reducers.of = map[*core.Context][]weak.Pointer[Reducer]{}
	}
	r.rankContext = core.CurrentContext()
	reducers.of[r.rankContext] = append(reducers.of[r.rankContext], weak.Make(r))
}

// unregister removes r from the reducers of its rank.
func (r *Reducer) unregister() {
	core.Lock(&reducers.Mutex)
	defer reducers.Unlock()
	list := slices.DeleteFunc(reducers.of[r.rankContext], func(p weak.Pointer[Reducer]) bool { return p.Value() == nil || p.Value() == r })
	if reducers.of[r.rankContext] = list; len(list) == 0 {
		delete(reducers.of, r.rankContext)
	}
}

// rankReducers returns the reducers of r's rank. The caller holds the lock.
func (r *Reducer) rankReducers() (list []*Reducer) {
	for _, p := range reducers.of[r.rankContext] {
		if x := p.Value(); x != nil {
			list = append(list, x)
		}
	}
	return list
}

// abort fails the pass on all ranks because of cause, or on this rank after another has failed it. It also fails unfinished
// passes of the rank's other reducers, since they belong to the same step. It does not wait.
func (r *Reducer) abort(cause error) {
	core.Lock(&reducers.Mutex)
	defer reducers.Unlock()
	r.dropPass(cause)
	for _, x := range r.rankReducers() {
		if x == r {
			continue
		}
		x.guard.Later(func() {
			if x.pendingEnd != nil && !x.pendingEnd.Done() || x.group.Revoked() != nil {
				x.dropPass(cause)
			}
		})
	}
}

// dropPass revokes the channel, drops the pass and all gradients, and makes parameters and buffers whose updates were skipped valid again.
func (r *Reducer) dropPass(cause error) {
	r.group.Revoke(cause)
	r.group = r.baseGroup.Channel()
	for _, b := range r.buffers { // as they were before the pass, also where the pass was to change them
		b.Tensor.Recover()
	}
	r.recentWorks = [2][]*collective.Work{} // works of the pass before have the same buffers, so they would report this failure too
	if r.pass != nil {
		r.pass.releaseGradientWeights()
	}
	for _, b := range r.buckets {
		b.group = r.group.For(b.purpose)
		b.releasePlaceholders()
		b.freeBuffer() // collectives on their way may still write to the buffer
	}
	for _, p := range r.params {
		if p.active {
			p.Tensor.SetGrad(nil)
		}
		// An optimiser skips its step if a gradient has failed. The parameter is then unchanged, but marked as failed.
		p.Tensor.Recover()
		core.TakeReported(r.rankContext.Stream(p.Tensor.Device()), cause)
	}
	for _, s := range r.streams {
		core.TakeReported(s, cause)
	}
	r.pass, r.pendingEnd, r.syncBackward, r.pendingSamples = nil, nil, false, 0
	r.failure = core.Errorf(core.StateError, "ddp", "the step has failed, and its gradients were dropped on every rank: begin it anew with a forward pass (%w)", cause)
}

// abortOn aborts the pass if err, an error at the beginning of a forward pass, ends it on all ranks. It returns err.
func (r *Reducer) abortOn(err error) error {
	if err != nil && (r.group.Revoked() != nil || r.syncBackward && collective.FailsStep(err)) {
		r.abort(err)
	}
	return err
}

// ForwardFailed tells the reducer that the forward pass that [Reducer.Forward] began has failed with cause. If memory ran out, or
// ranks did not meet, the pass fails on all ranks. After other errors, such as a wrong argument, this rank may repeat the forward
// pass.
func (r *Reducer) ForwardFailed(cause error) {
	r.guard.Later(func() {
		if r.syncBackward && r.pass == nil && collective.FailsStep(cause) {
			r.abort(cause)
		}
	})
}

// waitEnd waits until all ranks have reached the end of the pass, for at most limit unless it is negative. Unless must is set, it
// does not wait for ranks that run backward passes in another order: see [collective.Work.WaitForRanksUnlessCrossed].
func waitEnd(end *collective.Work, limit time.Duration, must bool) (over, crossed bool) {
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

// closePending waits, at the end of a backward pass, for the pending ends of all reducers of the rank. Modules in different
// groups may run backward in a different order on each rank, so only the last of them can wait.
func (r *Reducer) closePendingPasses(limit time.Duration) (over bool, err error) {
	core.Lock(&reducers.Mutex)
	list := r.rankReducers()
	reducers.Unlock()
	for _, x := range list {
		var end *collective.Work
		// A reducer that another thread uses is closed there.
		if err := x.Use(func() { end = x.pendingEnd }); err != nil || end == nil {
			continue
		}
		switch over, crossed := waitEnd(end, limit, false); {
		case crossed:
		case !over:
			return false, nil
		default:
			if err := x.closePass(); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// closePass waits for the pending end of a pass and returns its error.
func (r *Reducer) closePass() error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if r.pendingEnd == nil {
		return nil
	}
	r.pendingEnd.WaitForRanks()
	if err := r.pendingEnd.Err(); err != nil {
		r.abort(err)
		return err
	}
	r.saveArrivalOrder(r.pendingEnd)
	r.pendingEnd = nil
	return nil
}
