package pipeline

import (
	"errors"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/collective"
)

// The kinds of [Call].
const (
	CallForward  = iota // run a stage's forward pass on Inputs
	CallLoss            // compute the loss of Inputs, the last stage's output
	CallBackward        // answer a request of a backward pass
	CallAgain           // the time limit has passed: call NextFor again
	CallEnd             // with ranks: use the results of the step; a failure here fails the step on all ranks
)

// A Call is a request of a step to its caller. [Step.Answer] gives the answer.
type Call struct {
	What         int
	Stage, Micro int
	// Inputs are tensors on the stage's device. They belong to the step.
	Inputs []*core.Tensor
	// Mode is the mode for the caller's work: it has the stage's device as default, and the micro-batch's random generator.
	Mode core.Mode
	// Run and Request belong to CallBackward.
	Run     *autograd.Run
	Request *autograd.Request
}

// A Step is a running step: the passes of all micro-batches through all stages in the schedule's order. [Step.Next] runs it up to
// the next request to its caller.
type Step struct {
	x         *Executor
	batch     Batch
	actions   []Action
	next      int
	states    [][]*stageState // by stage and micro-batch
	micros    []*microBatch
	recorder  *recorder
	p2p       *p2p
	call      *Call
	err       error
	closed    bool
	committed bool             // the step has succeeded on all ranks
	reduced   bool             // gradients of shared parameters and losses are summed
	endAsked  bool             // CallEnd was returned
	endWork   *collective.Work // the exchange of all ranks at the end of the step
	losses    []*core.Tensor   // by micro-batch, weighted
	totalLoss *core.Tensor     // the sum of losses
	outputs   [][]*core.Tensor
}

// A microBatch has the context in which all stages run a micro-batch, and the state of its random generator.
type microBatch struct {
	context      *core.Context
	ownRandom    bool
	seed, offset uint64
}

// Begin prepares a step. The caller must close it.
func (x *Executor) Begin(b Batch) (*Step, error) {
	if err := x.check(&b); err != nil {
		return nil, err
	}
	s := &Step{x: x, batch: b}
	n := b.Schedule.Micro()
	if err := x.acquire(s); err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			x.current.CompareAndSwap(s, nil)
		}
	}()
	var err error
	if s.actions, err = x.actions(&b); err != nil {
		return nil, err
	}
	if err := s.fork(n); err != nil {
		return nil, err
	}
	for range x.place {
		row := make([]*stageState, n)
		for i := range row {
			row[i] = &stageState{}
		}
		s.states = append(s.states, row)
	}
	s.losses, s.outputs = make([]*core.Tensor, n), make([][]*core.Tensor, n)
	s.recorder = newRecorder(x, s.actions)
	if x.group != nil {
		s.p2p = &p2p{group: x.stepsChannel(), copier: x.copier}
	}
	for _, y := range x.tied {
		if err := y.refresh(x.copier); err != nil {
			s.Close()
			return nil, err
		}
	}
	for _, y := range x.shared {
		if err := y.begin(s.p2p, b.Train); err != nil {
			return nil, s.stop(err)
		}
	}
	begun = true
	return s, nil
}

// actions returns the actions of the calling thread. Each action comes after all actions it depends on.
func (x *Executor) actions(b *Batch) ([]Action, error) {
	schedule := b.Schedule
	if x.group == nil {
		order, err := schedule.order()
		if b.Train || err != nil {
			return order, err
		}
		var forward []Action
		for _, a := range order {
			if a.Kind == Forward {
				forward = append(forward, a)
			}
		}
		return forward, nil
	}
	if !schedule.hasTransfers() {
		var err error
		if schedule, err = schedule.WithTransfers(); err != nil {
			return nil, err
		}
	}
	if !b.Train {
		schedule = schedule.ForwardOnly()
	}
	return schedule.Rows[x.group.Rank()], nil
}

// fork gives each micro-batch a context, and in training a random generator of its own.
func (s *Step) fork(n int) error {
	here := core.CurrentContext()
	if !s.batch.Train {
		for range n {
			s.micros = append(s.micros, &microBatch{context: here.OnStreamsOf(here)})
		}
		return nil
	}
	forks, err := Forks(n)
	if err != nil {
		return err
	}
	for _, g := range forks {
		seed, offset := g.State()
		s.micros = append(s.micros, &microBatch{here.Worker(seed), true, seed, offset})
	}
	return nil
}

// withMode runs fn in the mode of an action's stage and micro-batch.
func (s *Step) withMode(a Action, grad bool, fn func()) {
	core.WithMode(func(core.Mode) core.Mode { return s.mode(a, grad) }, fn)
}

func (s *Step) mode(a Action, grad bool) core.Mode {
	m := s.micros[a.Micro]
	dev := s.x.Device(a.Stage)
	m.context.SetDefaultDevice(dev)
	return core.CurrentMode().WithContext(m.context).WithGrad(grad)
}

// fail ends the step because of an error in an action.
func (s *Step) fail(a Action, err error) error {
	s.recorder.settle(a, err)
	if first := s.recorder.failure(); first != nil {
		err = first // the error of an earlier action, found during execution
	} else {
		err = s.explain(a, err)
	}
	s.err = err
	s.Close()
	return err
}

// explain adds the action to an error.
func (s *Step) explain(a Action, err error) error { return explain(a, s.x.Device(a.Stage), err) }

func explain(a Action, dev core.Device, err error) error {
	if collective.IsRevoked(err) { // the error of another rank
		return err
	}
	var known *stageError
	if errors.As(err, &known) {
		return known
	}
	kind, ok := core.KindOf(err)
	if !ok {
		kind = core.StateError
	}
	return &stageError{core.Errorf(kind, "pipeline", "stage %d on %v, %s of micro-batch %d: %w", a.Stage, dev, a.Kind.description(), a.Micro, err)}
}

// A stageError is an error that names the stage and the micro-batch.
type stageError struct{ err error }

func (e *stageError) Error() string { return e.err.Error() }

// Unwrap returns the underlying error.
func (e *stageError) Unwrap() error { return e.err }

// Next runs the step up to the next request to the caller. It returns nil when the step has ended.
func (s *Step) Next() (*Call, error) { return s.NextFor(0) }

// NextFor is [Step.Next] with a time limit. If d is not 0, it returns [CallAgain] after about d, and when a queue is nearly full
// and it would wait.
func (s *Step) NextFor(d time.Duration) (*Call, error) {
	if s.err != nil || s.closed {
		return nil, s.err
	}
	until := time.Now().Add(d)
	for s.call == nil && s.next < len(s.actions) {
		if d > 0 && (core.QueueNearlyFull() || time.Now().After(until)) {
			return &Call{What: CallAgain}, nil
		}
		a := s.actions[s.next]
		again, err := s.advance(a, d)
		if err != nil {
			return nil, s.fail(a, err)
		}
		if again {
			return &Call{What: CallAgain}, nil
		}
	}
	if s.call != nil {
		return s.call, nil
	}
	return s.finish(d)
}

// advance runs an action until it is done or has a request to the caller. again reports that the time limit has passed.
func (s *Step) advance(a Action, d time.Duration) (again bool, err error) {
	c := s.states[a.Stage][a.Micro]
	switch a.Kind {
	case Forward:
		return false, s.beginForward(a, c)
	case Backward, InputGrad, WeightGrad:
		if c.run == nil && !c.backwardBegun {
			if err := s.beginBackward(a, c); err != nil {
				return false, err
			}
		} else if a.Kind == WeightGrad && !c.weightGradBegun {
			c.weightGradBegun = true
			s.recorder.begin(s.next, a, nil)
			if c.run != nil {
				c.run.Rest()
			}
		}
		if c.run != nil {
			q, more, err := stepRun(c.run, d)
			if err != nil || more {
				return more, err
			}
			if q != nil {
				s.call = &Call{What: CallBackward, Stage: a.Stage, Micro: a.Micro, Mode: q.Mode, Run: c.run, Request: q}
				return false, nil
			}
		}
		return false, s.endBackward(a, c)
	default:
		return s.p2p.run(s, a, c, d)
	}
}

func stepRun(r *autograd.Run, d time.Duration) (*autograd.Request, bool, error) {
	if d > 0 {
		return r.StepFor(d)
	}
	q, err := r.Step()
	return q, false, err
}

// Answer takes the results of a request: a stage's outputs, a loss, or gradients. The step takes over the references to
// gradients, and makes its own references to outputs and losses.
func (s *Step) Answer(results []*core.Tensor) error {
	call := s.call
	if call == nil {
		return core.Errorf(core.StateError, "pipeline", "answered without being asked")
	}
	s.call = nil
	if call.What == CallEnd {
		return nil
	}
	a := s.actions[s.next]
	c := s.states[a.Stage][a.Micro]
	var err error
	switch call.What {
	case CallBackward:
		err = call.Run.Resume(results)
	case CallForward:
		err = s.endForward(a, c, results)
	default:
		err = s.endLoss(a, c, results)
	}
	if err != nil {
		return s.fail(a, err)
	}
	return nil
}

// Fail ends the step on all ranks because the caller could not fulfil a request. It returns the error with the stage and the
// micro-batch.
func (s *Step) Fail(err error) error {
	call := s.call
	s.call = nil
	switch {
	case s.closed:
		return err
	case call == nil || call.What == CallEnd:
		return s.stop(err)
	}
	return s.fail(s.actions[s.next], err)
}

// Losses returns the weighted losses of the micro-batches. They belong to the step.
func (s *Step) Losses() []*core.Tensor { return s.losses }

// Outputs returns the last stage's outputs by micro-batch, if [Batch.Outputs] was set. They belong to the step.
func (s *Step) Outputs() [][]*core.Tensor { return s.outputs }

// Measured waits for the work of the step and returns when its actions ran. It returns nil while the step is running.
func (s *Step) Measured() *Timeline {
	if s.x.current.Load() == s {
		return nil
	}
	return s.recorder.timeline(s.batch.Schedule)
}

// Close frees everything the step holds except losses and outputs, which [Step.Release] frees. A step that has not succeeded
// fails on all ranks.
func (s *Step) Close() {
	if s.closed {
		return
	}
	s.closed = true
	defer s.x.current.CompareAndSwap(s, nil)
	if !s.committed {
		for _, y := range s.x.tied {
			y.dropGrads()
		}
		if s.p2p != nil {
			s.abort()
		}
	}
	for _, y := range s.x.shared {
		y.restoreGrad()
	}
	for _, row := range s.states {
		for _, c := range row {
			c.release()
		}
	}
	if s.p2p != nil {
		s.p2p.header.Release()
	}
	for _, m := range s.micros {
		m.context.Free()
	}
}

// Release closes the step and frees losses and outputs.
func (s *Step) Release() {
	s.Close()
	for _, l := range s.losses {
		l.Release()
	}
	for _, list := range s.outputs {
		release(list)
	}
	s.totalLoss.Release()
	s.losses, s.outputs, s.totalLoss = nil, nil, nil
}

func release(list []*core.Tensor) {
	for i, t := range list {
		t.Release()
		list[i] = nil
	}
}
