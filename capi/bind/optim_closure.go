package bind

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
)

// A closureStep is a step, on its way, of an algorithm that evaluates the loss itself. The algorithm runs on a goroutine
// of its own, in its caller's mode, and waits whenever it wants the loss, which the caller computes.
type closureStep struct {
	wanted  chan struct{}
	losses  chan *core.Tensor
	ended   chan error
	abort   chan struct{}
	aborted sync.Once
	due     atomic.Bool // the loss was asked for
	last    *core.Tensor
}

// OptimStepBegin starts a step of an optimiser that evaluates the loss itself, such as "lbfgs". Go on with
// [OptimStepNext], and release it.
func OptimStepBegin(h Object) (status Object) {
	defer protect("optim", &status)
	o, err := optimizer(h)
	if err != nil {
		return failure(err)
	}
	s := &closureStep{make(chan struct{}), make(chan *core.Tensor), make(chan error, 1), make(chan struct{}), sync.Once{}, atomic.Bool{}, nil}
	mode := core.CurrentMode()
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer core.SwapMode(core.SwapMode(mode))
		defer func() {
			if r := recover(); r != nil {
				s.ended <- panicError("optim", r)
			}
		}()
		defer s.forget()
		_, err := o.StepWith(s.loss)
		s.ended <- err
	}()
	return handle.AddObject(s)
}

// loss asks the caller for the loss.
func (s *closureStep) loss() (*core.Tensor, error) {
	select {
	case s.wanted <- struct{}{}:
	case <-s.abort:
		return nil, errAborted
	}
	s.forget()
	select {
	case s.last = <-s.losses:
		return s.last, nil
	case <-s.abort:
		return nil, errAborted
	}
}

// forget releases the last loss, whose value the algorithm has read.
func (s *closureStep) forget() {
	if s.last != nil {
		s.last.Release()
		s.last = nil
	}
}

var errAborted = core.Errorf(core.StateError, "optim", "the step was given up")

// Close gives the step up: parameters become what they were.
func (s *closureStep) Close() { s.aborted.Do(func() { close(s.abort) }) }

// OptimStepNext waits until the step wants the loss, and returns 1, or has ended, and returns 0.
//
//plait:waits
func OptimStepNext(h Object) (status Status) {
	defer protect("optim", &status)
	s, ok := handle.Object[*closureStep](h)
	if !ok {
		return failf(core.TypeError, "optim", "%d is not the handle of a step", h)
	}
	select {
	case <-s.wanted:
		s.due.Store(true)
		return 1
	case err := <-s.ended:
		s.ended <- nil
		return failure(err)
	}
}

// OptimStepLoss gives the step the loss that it wanted; 0 gives the step up, after which [OptimStepNext] waits until
// parameters are what they were.
//
//plait:waits
func OptimStepLoss(h Object, loss Tensor) (status Status) {
	defer protect("optim", &status)
	defer using(tensorOrNil(loss))()
	s, ok := handle.Object[*closureStep](h)
	if !ok {
		return failf(core.TypeError, "optim", "%d is not the handle of a step", h)
	}
	if loss == 0 {
		s.Close()
		return 0
	}
	t := tensor(loss).Alias(false)
	if err := t.Err(); err != nil {
		return failure(err)
	}
	if !s.due.CompareAndSwap(true, false) {
		t.Release()
		return failf(core.StateError, "optim", "no loss was wanted")
	}
	select {
	case s.losses <- t:
	case <-s.abort:
		t.Release()
	}
	return 0
}
