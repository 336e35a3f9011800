package core

import (
	"cmp"
	"reflect"
	"slices"
)

// A Borrowed is the memory of a contiguous tensor that a collective uses. The collective is launched later, when every rank has come,
// perhaps by another thread and on another device. Calls launched on the memory after [Borrow] wait for the collective; it waits for
// those launched before.
type Borrowed struct {
	operand Operand
	numel   int
	waits   []Event
	shared  bool
}

// Borrow hands the memory of t, which must be contiguous, to work that is done when until is. The work writes to it if write
// is set, and only reads it otherwise. The memory stays valid until then, also if the tensor is released.
// A stream that is locked may be the caller's, in [Call.Placed].
func Borrow(op string, t *Tensor, until Event, write bool) (Borrowed, error) {
	x := Borrowing{Tensor: t, Write: write}
	if err := x.check(op); err != nil {
		return Borrowed{}, err
	}
	crossing.Lock()
	defer crossing.Unlock()
	return x.borrow(until), nil
}

// A Borrowing is a tensor to be lent by [BorrowAll].
type Borrowing struct {
	Tensor *Tensor
	Made   Event // nothing launched after it uses the tensor, so the work need not wait for the rest of the stream; nil means all that was launched
	Write  bool
}

// BorrowAll is [Borrow] of many tensors to one work, of all or, with an error, none. Other threads' calls come before all of the loans or
// after: one that came between would wait for the work, which would wait for the call because of a later loan.
func BorrowAll(op string, list []Borrowing, until Event) ([]Borrowed, error) {
	var homes []Stream
	for i := range list {
		if err := list[i].check(op); err != nil {
			return nil, err
		}
		if home := list[i].Tensor.storage.held.home; !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	if len(homes) > 1 { // in one order by all threads
		at := func(s Stream) uintptr { return reflect.ValueOf(s).Pointer() }
		slices.SortFunc(homes, func(a, b Stream) int { return cmp.Compare(at(a), at(b)) })
	}
	loans := make([]Borrowed, len(list))
	lockedAll(homes, func() {
		crossing.Lock()
		defer crossing.Unlock()
		for i := range list {
			loans[i] = list[i].borrow(until)
		}
	})
	return loans, nil
}

// lockedAll is [Stream.Locked] of many streams.
func lockedAll(list []Stream, fn func()) {
	if len(list) == 0 {
		fn()
		return
	}
	list[0].Locked(func() { lockedAll(list[1:], fn) })
}

// check returns why the tensor cannot be lent.
func (x *Borrowing) check(op string) error {
	t := x.Tensor
	if err := t.Usable(op); err != nil {
		return err
	}
	switch {
	case t.isNumber:
		return Errorf(TypeError, op, "got a number, want a tensor")
	case !t.Contiguous():
		return Errorf(ValueError, op, "got a tensor of shape %v with strides %v, want a contiguous one", t.shape, t.strides)
	}
	return nil
}

// borrow makes the loan of a tensor that was checked. The caller holds crossing.
func (x *Borrowing) borrow(until Event) Borrowed {
	t := x.Tensor
	s := t.storage
	l := Borrowed{numel: t.Numel(), shared: s.shared.Load() > 0}
	l.operand = Operand{Memory: s.held.memory, Offset: t.offset, DType: t.dtype, present: true, borrowed: true, storage: s, epoch: s.epoch}
	l.waits = s.borrow(x.Made, until, x.Write)
	if x.Write && !CurrentMode().Inference() {
		s.BumpVersion()
	}
	return l
}

// borrow records that work uses the storage until an event is done, and returns the events that the work must wait for.
func (s *Storage) borrow(made, until Event, write bool) []Event {
	h := s.held
	if made == nil {
		made = h.home.Record()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	waits := []Event{made}
	kept := h.uses[:0]
	for _, u := range h.uses {
		switch {
		case u.event == until: // lent to the same work before
			write = write || u.write
			continue
		case u.event.Done():
			continue
		case write || u.write:
			waits = append(waits, u.event)
		}
		kept = append(kept, u)
	}
	h.uses = append(kept, foreignUse{event: until, write: write})
	s.setForeign(true)
	return waits
}

// Waits returns the events that the work must wait for before it uses the memory.
func (l *Borrowed) Waits() []Event { return l.waits }

// Shared reports whether somebody outside, such as a NumPy array, uses the memory too, so that the lender must wait for the
// work.
func (l *Borrowed) Shared() bool { return l.shared }

// Err returns the error that made the contents undefined, as far as execution has come.
func (l *Borrowed) Err() error { return l.operand.failed() }

// Fail marks the contents as undefined because of err.
func (l *Borrowed) Fail(err error) {
	if s := l.operand.storage; s != nil {
		s.fail(l.operand.epoch, err, false)
	}
}

// Restore takes back [Borrowed.Fail] with the same error, of work that left the contents as they were, unless a change of them that
// was launched since has been left out. Calls that were launched before it fail, and those after it find the contents.
func (l *Borrowed) Restore(err error) {
	s := l.operand.storage
	if s == nil || s.held == nil {
		return
	}
	epoch := l.operand.epoch
	if f := s.failure.Load(); f == nil || f.epoch != epoch || f.err != err {
		return
	}
	s.restore("restore", func(f *failure) bool { return f.epoch == epoch && f.err == err && !f.skipped })
}

// Recover makes the contents of t defined again if they are undefined because of an error that harmless names: one that has left
// them as they were, also where a change of them has been left out. Calls that were launched before it fail, and those after it
// find the contents.
func (t *Tensor) Recover(harmless func(err error) bool) {
	s := t.storage
	if s == nil || s.held == nil {
		return
	}
	epoch := s.epoch
	s.restore("recover", func(f *failure) bool { return f.epoch == epoch && harmless(f.err) })
}

// restore launches a call that forgets the failure if which says so.
func (s *Storage) restore(op string, which func(f *failure) bool) {
	home := s.held.home
	c := home.Begin(-1, op)
	c.HostOnly = true
	c.Fn = func() error {
		if f := s.failure.Load(); f != nil && which(f) {
			s.failure.CompareAndSwap(f, nil)
		}
		return nil
	}
	home.Launch(c)
}

// Region returns the bytes of n elements of the loan, from number from on. Whoever uses them does so after [Borrowed.Waits] and
// before the work ends.
func (l *Borrowed) Region(from, n int) Region {
	size := l.operand.DType.Size()
	return Region{l.operand.Memory, (l.operand.Offset + from) * size, n * size}
}

// part returns the operand of n elements of the loan from number from on.
func (l *Borrowed) part(from, n int) Operand {
	o := l.operand
	o.Offset += from
	o.partial = n < l.numel
	sizes := [...]int{n, 1}
	o.Shape, o.Strides = sizes[:1:1], sizes[1:]
	return o
}

// InBorrowed adds n elements of a loan, from number from on, as an input. The call must wait for what [Borrowed.Waits] says.
func (c *Call) InBorrowed(l *Borrowed, from, n int) *Call {
	c.Ins = append(c.Ins, l.part(from, n))
	c.Work = max(c.Work, n)
	return c
}

// InMemory adds n elements of memory that is of no tensor, from number from on, as an input. The caller sees to it that it is
// there when the call runs.
func (c *Call) InMemory(m Memory, d DType, from, n int) *Call {
	sizes := [...]int{n, 1}
	c.Ins = append(c.Ins, Operand{Memory: m, Offset: from, DType: d, present: true, partial: true, Shape: sizes[:1:1], Strides: sizes[1:]})
	c.Work = max(c.Work, n)
	return c
}

// OutBorrowed adds n elements of a loan, from number from on, as an output. The call must wait for what [Borrowed.Waits] says.
func (c *Call) OutBorrowed(l *Borrowed, from, n int) *Call {
	c.Outs = append(c.Outs, l.part(from, n))
	c.Work = max(c.Work, n)
	return c
}
