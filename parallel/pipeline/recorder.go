package pipeline

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A recorder puts callbacks on the devices' streams between the actions of a step. The callbacks measure when each action began
// and ended. They also find the action in which a computation failed first: its outputs fail before the tensors that are computed
// from them.
type recorder struct {
	x         *Executor
	actions   []Action
	start     time.Time
	begins    []atomic.Int64 // nanoseconds since start, by action
	ends      []atomic.Int64
	done      []core.Event
	errBefore []error // by action: the stream's unread error at its beginning, for a lateFailer
	failed    atomic.Pointer[stageError]
	tiesEnd   atomic.Int64 // when the gradients of tied parameters had been summed
	tieEvents []core.Event
}

// A lateFailer is a stream that finds some failures only after the work, such as an index out of range on a GPU. Such a failure
// belongs to the stream and not to a tensor. Its error has a method FoundLate, which settle looks for.
type lateFailer interface {
	// Failure returns the first unread error and leaves it unread.
	Failure() error
	// Explain replaces the unread error by a better one.
	Explain(old, better error)
}

func newRecorder(x *Executor, actions []Action) *recorder {
	return &recorder{x: x, actions: actions, start: time.Now(), begins: make([]atomic.Int64, len(actions)),
		ends: make([]atomic.Int64, len(actions)), done: make([]core.Event, len(actions)), errBefore: make([]error, len(actions))}
}

// stream returns the compute stream of the action's stage.
func (r *recorder) stream(a Action) core.Stream {
	return core.CurrentContext().Stream(r.x.Device(a.Stage))
}

// begin records the beginning of action i, once the tensors in wait are computed.
func (r *recorder) begin(i int, a Action, wait []*core.Tensor) {
	s := r.stream(a)
	find, late := s.(lateFailer)
	c := s.Begin(-1, "pipeline")
	for _, t := range wait {
		if t.Err() == nil {
			c.In(t)
		}
	}
	c.Work = 0
	c.Mark = func() {
		if late {
			r.errBefore[i] = find.Failure()
		}
		r.begins[i].Store(int64(time.Since(r.start)) + 1)
	}
	s.Launch(c)
}

// end records the end of action i, which computes outs.
func (r *recorder) end(i int, a Action, outs []*core.Tensor) {
	s := r.stream(a)
	dev := s.Device()
	find, late := s.(lateFailer)
	var views []*core.Tensor
	mode := core.CurrentMode()
	for _, t := range outs {
		if t.Numel() > 0 && t.Storage() != nil {
			views = append(views, core.WrapTensor(mode, t.Storage(), t.DType(), []int{1}, []int{1}, t.Offset()))
		}
	}
	c := s.Begin(-1, "pipeline")
	var loans []core.Borrowed
	c.OnLaunch = func(done core.Event) {
		r.done[i] = done
		for _, v := range views {
			if l, err := core.Borrow("pipeline", v, done, false); err == nil {
				loans = append(loans, l)
			}
		}
	}
	c.Mark = func() {
		r.ends[i].Store(int64(time.Since(r.start)) + 1)
		var found error
		if late && r.begins[i].Load() > 0 {
			if err := find.Failure(); err != r.errBefore[i] {
				found = err
			}
		}
		if found != nil {
			better := r.attribute(a, dev, found)
			find.Explain(found, better)
			found = better
		}
		for k := range loans {
			if err := cmp.Or(loans[k].Err(), found); err != nil {
				loans[k].Fail(r.attribute(a, dev, err))
			}
		}
	}
	s.Launch(c)
	release(views)
}

// markTies records when the work launched on a device so far is done. It is called after the gradients of a tied parameter are
// summed there.
func (r *recorder) markTies(dev core.Device) {
	s := core.CurrentContext().Stream(dev)
	c := s.Begin(-1, "pipeline")
	c.OnLaunch = func(done core.Event) { r.tieEvents = append(r.tieEvents, done) }
	c.Mark = func() {
		now := int64(time.Since(r.start)) + 1
		for old := r.tiesEnd.Load(); old < now && !r.tiesEnd.CompareAndSwap(old, now); old = r.tiesEnd.Load() {
		}
	}
	s.Launch(c)
}

// attribute returns err with the action that failed, unless err already names an earlier action.
func (r *recorder) attribute(a Action, dev core.Device, err error) error {
	e := explain(a, dev, err)
	if s, ok := e.(*stageError); ok {
		r.failed.CompareAndSwap(nil, s)
	}
	return e
}

// settle waits until the actions launched on the stage's device have said what they found, if err is of execution. The stream has such an
// error a moment before the action that it belongs to is known.
func (r *recorder) settle(a Action, err error) {
	var late interface{ FoundLate() }
	if !errors.As(err, &late) {
		return
	}
	for i, e := range r.done {
		if e != nil && r.x.place[r.actions[i].Stage] == r.x.place[a.Stage] {
			e.Wait()
		}
	}
}

// failure returns the error of the first action known to have failed during execution.
func (r *recorder) failure() error {
	if e := r.failed.Load(); e != nil {
		return e
	}
	return nil
}

// timeline waits for the step and returns the measured times, or nil if an action did not run.
func (r *recorder) timeline(s *Schedule) *Timeline {
	for _, e := range r.tieEvents {
		e.Wait()
	}
	t := &Timeline{Name: s.Name + ", measured", Spans: make([][]Span, len(s.Rows))}
	first := int64(-1)
	for i, a := range r.actions {
		if !a.Kind.Computes() {
			continue
		}
		if r.done[i] == nil {
			return nil
		}
		r.done[i].Wait()
		if at := r.begins[i].Load(); at > 0 && (first < 0 || at < first) {
			first = at
		}
	}
	seconds := func(at int64) float64 { return float64(at-first) / 1e9 }
	for i, a := range r.actions {
		if b, e := r.begins[i].Load(), r.ends[i].Load(); a.Kind.Computes() && b > 0 && e >= b {
			d := r.x.place[a.Stage]
			t.Spans[d] = append(t.Spans[d], Span{a, seconds(b), seconds(e)})
		}
	}
	t.setTime(max(0, seconds(r.tiesEnd.Load())))
	t.setMemory(s.Compute(), Costs{})
	return t
}
