package pipeline

import (
	"errors"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/collective"
)

// What a [Call] asks its caller for.
const (
	CallForward  = iota // to run a stage's forward pass on Inputs
	CallLoss            // to compute the loss of Inputs, the last stage's output
	CallBackward        // to answer a request of a backward pass
	CallAgain           // nothing: time is up, go on
	CallEnd             // of ranks, to make what it makes of the whole step: if that fails, the step fails on all ranks
)

// A Call is what a step asks its caller for; [Step.Answer] gives the answer.
type Call struct {
	What         int
	Stage, Micro int
	// Inputs are tensors on the stage's device. They belong to the step.
	Inputs []*core.Tensor
	// Mode is the mode to do it in: the stage's device is the default, and random numbers are the micro-batch's.
	Mode core.Mode
	// Run and Request are those of a backward pass that asks for something.
	Run     *autograd.Run
	Request *autograd.Request
}

// A Step is one step on its way: the passes of all micro-batches through all stages, in the schedule's order. [Step.Next] goes
// on until its caller is asked for something.
type Step struct {
	x       *Executor
	batch   Batch
	actions []Action
	at      int
	cells   [][]*cell // by stage and micro-batch
	micros  []*micro
	marks   *marks
	remote  *remote
	call    *Call
	err     error
	closed  bool
	over    bool             // the step counts, on all ranks
	joined  bool             // the gradients of tensors that several stages have, and the losses
	asked   bool             // the caller, for the last time
	end     *collective.Work // of all ranks
	losses  []*core.Tensor   // weighted
	total   *core.Tensor     // of the losses
	outputs [][]*core.Tensor
}

// A micro is what goes with a micro-batch through the stages.
type micro struct {
	context      *core.Context
	forked       bool
	seed, offset uint64
}

// Begin prepares a step. Close it.
func (x *Executor) Begin(b Batch) (*Step, error) {
	if err := x.check(&b); err != nil {
		return nil, err
	}
	s := &Step{x: x, batch: b}
	n := b.Schedule.Micro()
	if err := x.take(s); err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			x.open.CompareAndSwap(s, nil)
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
		row := make([]*cell, n)
		for i := range row {
			row[i] = &cell{}
		}
		s.cells = append(s.cells, row)
	}
	s.losses, s.outputs = make([]*core.Tensor, n), make([][]*core.Tensor, n)
	s.marks = newMarks(x, s.actions)
	if x.group != nil {
		s.remote = &remote{group: x.channel(), lines: x.lines}
	}
	for _, y := range x.ties {
		if err := y.refresh(x.lines); err != nil {
			s.Close()
			return nil, err
		}
	}
	for _, y := range x.shares {
		if err := y.begin(s.remote, b.Train); err != nil {
			return nil, s.stop(err)
		}
	}
	begun = true
	return s, nil
}

// actions returns what the calling thread does, in an order in which nothing comes before what it needs.
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
	if !schedule.sends() {
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

// fork gives each micro-batch a context, and in training random numbers of its own.
func (s *Step) fork(n int) error {
	here := core.CurrentContext()
	if !s.batch.Train {
		for range n {
			s.micros = append(s.micros, &micro{context: here.OnStreamsOf(here)})
		}
		return nil
	}
	forks, err := Forks(n)
	if err != nil {
		return err
	}
	for _, g := range forks {
		seed, offset := g.State()
		s.micros = append(s.micros, &micro{here.Worker(seed), true, seed, offset})
	}
	return nil
}

// in runs fn as part of a stage's work on a micro-batch.
func (s *Step) in(a Action, grad bool, fn func()) {
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
	if first := s.marks.failure(); first != nil {
		err = first // an earlier action's, found while it ran
	} else {
		err = s.explain(a, err)
	}
	s.err = err
	s.Close()
	return err
}

// explain says in which action an error happened.
func (s *Step) explain(a Action, err error) error { return explain(a, s.x.Device(a.Stage), err) }

func explain(a Action, dev core.Device, err error) error {
	if collective.IsRevoked(err) { // another rank's
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
	return &stageError{core.Errorf(kind, "pipeline", "stage %d on %v, %s of micro-batch %d: %w", a.Stage, dev, a.Kind.word(), a.Micro, err)}
}

// A stageError says in which stage it happened.
type stageError struct{ err error }

func (e *stageError) Error() string { return e.err.Error() }

// Unwrap returns the error, with its kind.
func (e *stageError) Unwrap() error { return e.err }

// Next goes on with the step. It returns nil when the step has ended, and otherwise what the caller is asked for.
func (s *Step) Next() (*Call, error) { return s.NextFor(0) }

// NextFor is [Step.Next] that, if d is not 0, returns [CallAgain] after about d, and where it would wait for room in a queue.
func (s *Step) NextFor(d time.Duration) (*Call, error) {
	if s.err != nil || s.closed {
		return nil, s.err
	}
	until := time.Now().Add(d)
	for s.call == nil && s.at < len(s.actions) {
		if d > 0 && (core.QueueNearlyFull() || time.Now().After(until)) {
			return &Call{What: CallAgain}, nil
		}
		a := s.actions[s.at]
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

// advance goes on with an action, until it is done or asks the caller for something; again says that time is up.
func (s *Step) advance(a Action, d time.Duration) (again bool, err error) {
	c := s.cells[a.Stage][a.Micro]
	switch a.Kind {
	case Forward:
		return false, s.beginForward(a, c)
	case Backward, InputGrad, WeightGrad:
		if c.run == nil && !c.begun {
			if err := s.beginBackward(a, c); err != nil {
				return false, err
			}
		} else if a.Kind == WeightGrad && !c.resting {
			c.resting = true
			s.marks.begin(s.at, a, nil)
			if c.run != nil {
				c.run.Rest()
			}
		}
		if c.run != nil {
			q, more, err := step(c.run, d)
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
		return s.remote.transfer(s, a, c, d)
	}
}

func step(r *autograd.Run, d time.Duration) (*autograd.Request, bool, error) {
	if d > 0 {
		return r.StepFor(d)
	}
	q, err := r.Step()
	return q, false, err
}

// Answer gives the results of what the step asked for: a stage's outputs, a loss, or gradients. The step takes gradients over;
// of tensors it makes references of its own.
func (s *Step) Answer(results []*core.Tensor) error {
	call := s.call
	if call == nil {
		return core.Errorf(core.StateError, "pipeline", "answered without being asked")
	}
	s.call = nil
	if call.What == CallEnd {
		return nil
	}
	a := s.actions[s.at]
	c := s.cells[a.Stage][a.Micro]
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

// Fail ends the step because the caller could not do what it was asked for, on all ranks. It returns the error, with the stage and
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
	return s.fail(s.actions[s.at], err)
}

// Losses returns the losses of the micro-batches, times their weights. They belong to the step.
func (s *Step) Losses() []*core.Tensor { return s.losses }

// Outputs returns the last stage's outputs by micro-batch, if they were asked for. They belong to the step.
func (s *Step) Outputs() [][]*core.Tensor { return s.outputs }

// Measured waits for the work of the step and returns when it was done; nil while it is on its way.
func (s *Step) Measured() *Timeline {
	if s.x.open.Load() == s {
		return nil
	}
	return s.marks.timeline(s.batch.Schedule)
}

// Close lets go of everything that the step holds but losses and outputs, which [Step.Release] gives back.
func (s *Step) Close() {
	if s.closed {
		return
	}
	s.closed = true
	defer s.x.open.CompareAndSwap(s, nil)
	if !s.over {
		for _, y := range s.x.ties {
			y.forget()
		}
		if s.remote != nil {
			s.giveUp()
		}
	}
	for _, y := range s.x.shares {
		y.forget()
	}
	for _, row := range s.cells {
		for _, c := range row {
			c.drop()
		}
	}
	if s.remote != nil {
		s.remote.header.Release()
	}
	for _, m := range s.micros {
		m.context.Free()
	}
}

// Release closes the step and gives losses and outputs back.
func (s *Step) Release() {
	s.Close()
	for _, l := range s.losses {
		l.Release()
	}
	for _, list := range s.outputs {
		release(list)
	}
	s.total.Release()
	s.losses, s.outputs, s.total = nil, nil, nil
}

func release(list []*core.Tensor) {
	for i, t := range list {
		t.Release()
		list[i] = nil
	}
}
