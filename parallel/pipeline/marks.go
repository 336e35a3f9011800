package pipeline

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// marks are calls on the devices' streams between the actions of a step. They measure when each action began and ended. They also tell
// in which action a computation failed first: its outputs fail before those that are computed from them.
type marks struct {
	x       *Executor
	actions []Action
	start   time.Time
	began   []atomic.Int64 // nanoseconds since start, by action
	ended   []atomic.Int64
	done    []core.Event
	before  []error // the stream's unread error when the action began, of streams that find failures after the work
	failed  atomic.Pointer[stageError]
	last    atomic.Int64 // when gradients of tied tensors had been added
	added   []core.Event
}

// A finder is a stream that finds some failures only after the work, such as an index past the end on a GPU: they are the
// stream's, and no tensor's.
type finder interface {
	// Failure returns the first unread error, and leaves it unread.
	Failure() error
	// Explain puts a better error in its place.
	Explain(old, better error)
}

func newMarks(x *Executor, actions []Action) *marks {
	return &marks{x: x, actions: actions, start: time.Now(), began: make([]atomic.Int64, len(actions)),
		ended: make([]atomic.Int64, len(actions)), done: make([]core.Event, len(actions)), before: make([]error, len(actions))}
}

// stream returns the stream on which a stage works.
func (m *marks) stream(a Action) core.Stream {
	return core.CurrentContext().Stream(m.x.Device(a.Stage))
}

// begin marks the beginning of action number i, which waits for the tensors.
func (m *marks) begin(i int, a Action, wait []*core.Tensor) {
	s := m.stream(a)
	find, late := s.(finder)
	c := s.Begin(-1, "pipeline")
	for _, t := range wait {
		if t.Err() == nil {
			c.In(t)
		}
	}
	c.Work = 0
	c.Mark = func() {
		if late {
			m.before[i] = find.Failure()
		}
		m.began[i].Store(int64(time.Since(m.start)) + 1)
	}
	s.Launch(c)
}

// end marks the end of action number i, which has made outs.
func (m *marks) end(i int, a Action, outs []*core.Tensor) {
	s := m.stream(a)
	dev := s.Device()
	find, late := s.(finder)
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
		m.done[i] = done
		for _, v := range views {
			if l, err := core.Borrow("pipeline", v, done, false); err == nil {
				loans = append(loans, l)
			}
		}
	}
	c.Mark = func() {
		m.ended[i].Store(int64(time.Since(m.start)) + 1)
		var found error
		if late && m.began[i].Load() > 0 {
			if err := find.Failure(); err != m.before[i] {
				found = err
			}
		}
		if found != nil {
			better := m.blame(a, dev, found)
			find.Explain(found, better)
			found = better
		}
		for k := range loans {
			if err := cmp.Or(loans[k].Err(), found); err != nil {
				loans[k].Fail(m.blame(a, dev, err))
			}
		}
	}
	s.Launch(c)
	release(views)
}

// tied marks the end of what has been launched on a device to add gradients of a tied tensor.
func (m *marks) tied(dev core.Device) {
	s := core.CurrentContext().Stream(dev)
	c := s.Begin(-1, "pipeline")
	c.OnLaunch = func(done core.Event) { m.added = append(m.added, done) }
	c.Mark = func() {
		now := int64(time.Since(m.start)) + 1
		for old := m.last.Load(); old < now && !m.last.CompareAndSwap(old, now); old = m.last.Load() {
		}
	}
	s.Launch(c)
}

// blame returns err as the failure of an action, unless it is one that an earlier action has passed on.
func (m *marks) blame(a Action, dev core.Device, err error) error {
	e := explain(a, dev, err)
	if s, ok := e.(*stageError); ok {
		m.failed.CompareAndSwap(nil, s)
	}
	return e
}

// failure returns the error of the first action that is known to have failed while it ran.
func (m *marks) failure() error {
	if e := m.failed.Load(); e != nil {
		return e
	}
	return nil
}

// timeline waits for the step and returns what was measured.
func (m *marks) timeline(s *Schedule) *Timeline {
	for _, e := range m.added {
		e.Wait()
	}
	t := &Timeline{Name: s.Name + ", measured", Spans: make([][]Span, len(s.Rows))}
	first := int64(-1)
	for i, a := range m.actions {
		if !a.Kind.Computes() {
			continue
		}
		if m.done[i] == nil {
			return nil
		}
		m.done[i].Wait()
		if at := m.began[i].Load(); at > 0 && (first < 0 || at < first) {
			first = at
		}
	}
	seconds := func(at int64) float64 { return float64(at-first) / 1e9 }
	for i, a := range m.actions {
		if b, e := m.began[i].Load(), m.ended[i].Load(); a.Kind.Computes() && b > 0 && e >= b {
			d := m.x.place[a.Stage]
			t.Spans[d] = append(t.Spans[d], Span{a, seconds(b), seconds(e)})
		}
	}
	t.finish(max(0, seconds(m.last.Load())))
	t.remember(s.Compute(), Costs{})
	return t
}
