package collective

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/flight"
)

// shownTensors is the number of tensors of an operation that a recorder keeps; messages show at most as many.
const shownTensors = 9

// A recorder is a ring buffer of a rank's last operations in a group.
type recorder struct {
	mu      sync.Mutex
	size    int
	entries []entry // grows up to size
	next    int
}

// An entry is what is kept of an operation. It holds no tensor: that would keep memory alive.
type entry struct {
	op      Operation // without tensors
	tensors []shaped
	count   int // of all tensors
	bytes   int
	work    *Work
}

// shaped describes a tensor, or a part of one with n elements.
type shaped struct {
	dtype core.DType
	shape []int
	part  bool
	n     int
}

// clockStart is what times of operations count from.
var clockStart = time.Now()

// clockNow returns the time since clockStart in nanoseconds, at least 1.
func clockNow() int64 { return max(int64(time.Since(clockStart)), 1) }

// wallClock converts a time of clockNow to nanoseconds since 1970. 0 stays 0.
func wallClock(t int64) int64 {
	if t == 0 {
		return 0
	}
	return clockStart.UnixNano() + t
}

// add records a call. Nothing is written as text here, since most operations are never looked at.
func (r *recorder) add(o *Operation, w *Work) {
	w.times.called = clockNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.entries) < r.size {
		r.entries = append(r.entries, entry{})
	}
	e := &r.entries[r.next%r.size]
	r.next++
	pieces, rest := o.shown()
	*e = entry{op: *o, tensors: e.tensors[:0], count: len(pieces) + len(rest), work: w}
	e.op.Ins, e.op.Outs, e.op.Payload, e.op.made, e.op.countStaged = nil, nil, nil, nil, nil
	for _, list := range [][]Piece{pieces, rest} {
		for i := range list {
			if len(e.tensors) == shownTensors {
				break
			}
			p := &list[i]
			e.tensors = append(e.tensors, shaped{p.dtype, p.shape, core.Numel(p.shape) != p.N, p.N})
		}
	}
	e.bytes = max(sizeOf(o.Ins), sizeOf(o.Outs))
}

func sizeOf(pieces []Piece) (n int) {
	for i := range pieces {
		n += pieces[i].bytes()
	}
	return n
}

// list returns the last operations, the oldest first. Their GroupID is the channel alone.
func (r *recorder) list() (list []flight.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := max(0, r.next-len(r.entries)); i < r.next; i++ {
		list = append(list, r.entries[i%r.size].flight())
	}
	return list
}

// flight describes the operation.
func (e *entry) flight() flight.Operation {
	detail := e.op.variant()
	switch {
	case e.op.Kind == KindSend:
		detail = fmt.Sprint("to ", e.op.Root)
	case e.op.Kind == KindRecv && e.op.Root == anyone:
		detail = "from any"
	case e.op.Kind == KindRecv:
		detail = fmt.Sprint("from ", e.op.Root)
	}
	if e.op.Tag != 0 {
		detail += fmt.Sprint(", tag ", e.op.Tag)
	}
	o := flight.Operation{Group: e.op.group, GroupID: strconv.FormatUint(e.op.channel, 16), Seq: e.op.Seq, Name: e.op.name(), Detail: detail, Tensors: []flight.Tensor{}, Count: e.count,
		Purpose: e.op.Purpose, Bytes: e.bytes, Uniform: e.op.Kind.sameShapes(), Called: wallClock(e.work.times.called)}
	for _, t := range e.tensors {
		shape := t.shape
		if t.part {
			shape = []int{t.n}
		}
		o.Tensors = append(o.Tensors, flight.Tensor{DType: t.dtype.String(), Shape: append([]int{}, shape...)})
	}
	var err error
	o.State, err = e.work.state()
	if err != nil {
		o.Error = err.Error()
	}
	o.Started, o.Ended = wallClock(e.work.times.started.Load()), wallClock(e.work.times.ended.Load())
	return o
}

// find returns those of the rank's last works that end at e: see [outcome.endsAt].
func (r *recorder) find(e core.Event) (list []*Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.entries {
		if w := r.entries[i].work; w != nil && w.endsAt(e) {
			list = append(list, w)
		}
	}
	return list
}

// seal lets go of what the works that are done refer to.
func (r *recorder) seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.entries {
		w := r.entries[i].work
		state, err := w.state()
		if state == flight.Waiting || state == flight.Running {
			continue
		}
		sealed := failedWork("", err)
		sealed.times.called = w.times.called
		sealed.times.started.Store(w.times.started.Load())
		sealed.times.ended.Store(w.times.ended.Load())
		r.entries[i].work = sealed
	}
}

// describe writes an operation and its state for messages.
func describe(o *flight.Operation) string {
	if o.Name == "" {
		return "none"
	}
	state := o.State
	switch state {
	case flight.Waiting:
		state = "waits for ranks"
	case flight.Running:
		state = "runs"
	case flight.Failed:
		state = o.Error
	}
	if o.Seq == 0 {
		return fmt.Sprintf("%s, %s", o.Call(), state)
	}
	return fmt.Sprintf("#%d %s, %s", o.Seq, o.Call(), state)
}

// last returns the rank's last operation. It reports whether there is one.
func (r *recorder) last() (last flight.Operation, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == 0 {
		return last, false
	}
	return r.entries[(r.next-1)%r.size].flight(), true
}

// state returns the state for records, and the error of a work that has failed.
func (w *Work) state() (string, error) {
	switch {
	case !w.settled.Load():
		return flight.Waiting, nil
	case w.err != nil:
		return flight.Failed, w.err
	case !w.Done():
		return flight.Running, nil
	}
	w.noteEnd()
	if err := w.cancelled.Load(); err != nil {
		return flight.Failed, *err
	}
	return flight.Done, nil
}

// history describes err and the last operations of all ranks.
func (m *rendezvous) history(err error) string {
	const shown = 8
	var b strings.Builder
	fmt.Fprintf(&b, "plait: %v\n", err)
	for i, rank := range m.ranks {
		list := m.records[i].list()
		fmt.Fprintf(&b, "  rank %d (%d in the world), the last of %d operations:\n", i, rank, m.records[i].count())
		for _, o := range list[max(0, len(list)-shown):] {
			fmt.Fprintf(&b, "    %s %s\n", time.Unix(0, o.Called).Format("15:04:05.000"), describe(&o))
		}
	}
	return b.String()
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// Status describes the last operation of each of this process's ranks, in any group, for messages.
func (w *World) Status() string {
	var parts []string
	groups := w.world.all()
	for _, g := range w.groups {
		var last flight.Operation
		for _, m := range groups {
			if i := slices.Index(m.ranks, g.rank); i >= 0 {
				if r, any := m.records[i].last(); any && r.Called >= last.Called {
					last = r
				}
			}
		}
		parts = append(parts, fmt.Sprintf("rank %d: %s", g.rank, describe(&last)))
	}
	return strings.Join(parts, "; ")
}
