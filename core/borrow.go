package core

import (
	"cmp"
	"reflect"
	"slices"
)

// A Borrowed is a tensor's memory while a collective uses it. The collective is launched later, when every rank has arrived,
// perhaps by another thread and on another device. Calls launched on the memory after [Borrow] wait for the collective. The collective
// waits for calls launched before.
type Borrowed struct {
	operand Operand
	numel   int
	waits   []Event
	shared  bool
}

// Borrow lends the memory of t, which must be contiguous, to asynchronous work that ends with the event until. If write is set the work
// writes to the memory. The memory stays valid until then, even if the tensor is released. The caller may hold the lock of one stream, as
// in [Call.OnLaunch].
func Borrow(op string, t *Tensor, until Event, write bool) (Borrowed, error) {
	x := Borrowing{Tensor: t, Write: write}
	if err := x.check(op); err != nil {
		return Borrowed{}, err
	}
	crossStreamMu.Lock()
	defer crossStreamMu.Unlock()
	return x.borrow(until), nil
}

// A Borrowing is one tensor in the list of [BorrowAll].
type Borrowing struct {
	Tensor *Tensor
	// The work waits for Made instead of the whole stream: nothing launched after it uses the tensor. Nil means everything launched so far.
	Made  Event
	Write bool
	// InRows says that the work knows where the elements of a tensor lie that is not contiguous.
	InRows bool
}

// BorrowAll is [Borrow] of many tensors for the same work. It lends all of them or, with an error, none. Calls of other threads are ordered
// before all of the list or after all of it. A call in the middle could deadlock: it would wait for the work, and the work, through a later
// tensor of the list, for the call.
func BorrowAll(op string, list []Borrowing, until Event) ([]Borrowed, error) {
	var homes []Stream
	for i := range list {
		if err := list[i].check(op); err != nil {
			return nil, err
		}
		if home := list[i].Tensor.storage.alloc.home; !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	if len(homes) > 1 { // every thread locks them in the same order
		at := func(s Stream) uintptr { return reflect.ValueOf(s).Pointer() }
		slices.SortFunc(homes, func(a, b Stream) int { return cmp.Compare(at(a), at(b)) })
	}
	loans := make([]Borrowed, len(list))
	lockedAll(homes, func() {
		crossStreamMu.Lock()
		defer crossStreamMu.Unlock()
		for i := range list {
			loans[i] = list[i].borrow(until)
		}
	})
	return loans, nil
}

// lockedAll is [Stream.Locked] of many streams.
func lockedAll(list []Stream, fn func()) {
	switch len(list) {
	case 0:
		fn()
	case 1:
		list[0].Locked(fn)
	default:
		list[0].Locked(func() { lockedAll(list[1:], fn) })
	}
}

// check returns the reason why the tensor cannot be lent, or nil.
func (x *Borrowing) check(op string) error {
	if r := CurrentRecording(); r != nil {
		r.Refuse("%s works beside the stream, and only the stream's calls are replayed", op)
	}
	t := x.Tensor
	if err := t.Usable(op); err != nil {
		return err
	}
	switch {
	case t.isNumber:
		return Errorf(TypeError, op, "got a number, want a tensor")
	case !x.InRows && !t.Contiguous():
		return Errorf(ValueError, op, "got a tensor of shape %v with strides %v, want a contiguous one", t.shape, t.strides)
	}
	return nil
}

// borrow lends a tensor that check accepted. The caller holds crossStreamMu.
func (x *Borrowing) borrow(until Event) Borrowed {
	t := x.Tensor
	s := t.storage
	l := Borrowed{numel: t.Numel(), shared: s.shared.Load() > 0}
	l.operand = Operand{Memory: s.alloc.memory, Offset: t.offset, DType: t.dtype, present: true, borrowed: true, storage: s, epoch: s.epoch}
	l.waits = s.borrow(x.Made, until, x.Write)
	if x.Write && !CurrentMode().Inference() {
		s.BumpVersion()
	}
	return l
}

// borrow records that the work uses the storage until the event, and returns the events that the work must wait for.
func (s *Storage) borrow(made, until Event, write bool) []Event {
	h := s.alloc
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

// Waits returns the events that the work must wait for before it touches the memory.
func (l *Borrowed) Waits() []Event { return l.waits }

// Shared reports whether code outside the engine, such as a NumPy array, uses the memory too. The caller must then wait for the work.
func (l *Borrowed) Shared() bool { return l.shared }

// Err returns the error that made the contents undefined, as far as execution has progressed.
func (l *Borrowed) Err() error { return l.operand.failed() }

// Fail marks the contents as undefined because of err.
func (l *Borrowed) Fail(err error) {
	if s := l.operand.storage; s != nil {
		s.fail(l.operand.epoch, err, false)
	}
}

// FailUnchanged marks the contents as unchanged because of err: the work that was to change them did not start.
func (l *Borrowed) FailUnchanged(err error) {
	if s := l.operand.storage; s != nil {
		s.failUnchanged(l.operand.epoch, err, false)
	}
}

// Restore undoes [Borrowed.FailUnchanged] with the same error, for work that left the contents unchanged. It does nothing if a later change of the
// contents was skipped. Calls launched before Restore fail; calls launched after it see the contents. pending says that FailUnchanged may
// be yet to come, before the event that the memory is lent until.
func (l *Borrowed) Restore(err error, pending bool) {
	s := l.operand.storage
	if s == nil || s.alloc == nil {
		return
	}
	epoch := l.operand.epoch
	if f := s.failure.Load(); !pending && (f == nil || f.epoch != epoch || f.err != err) {
		return
	}
	s.restore("restore", func(f *failure) bool { return f.epoch == epoch && f.err == err && !f.skipped })
}

// Recover makes t valid again if its contents are unchanged: if the failure only says that changes were skipped or did not start. Calls
// launched before Recover fail; calls launched after it see the contents.
func (t *Tensor) Recover() {
	s := t.storage
	if s == nil || s.alloc == nil {
		return
	}
	epoch := s.epoch
	done := s.restore("recover", func(f *failure) bool { return f.epoch == epoch && f.unchanged })
	s.recovery.Store(&done)
}

// Recovery returns the end of the last [Tensor.Recover] of the storage, or nil. Each call of Recover makes another pointer.
func (s *Storage) Recovery() *Event { return s.recovery.Load() }

// ErrRecovered returns [Storage.Err]. If there is an error, it waits for [Tensor.Recover] first.
func (s *Storage) ErrRecovered() error {
	if s.Err() != nil {
		if e := s.Recovery(); e != nil {
			WithoutForeignLock(func() { WaitOn(*e, -1) })
		}
	}
	return s.Err()
}

// restore launches a call that clears the failure if which accepts it, after all uses of the memory so far. It returns the call's end.
func (s *Storage) restore(op string, which func(f *failure) bool) Event {
	home := s.alloc.home
	c := home.Begin(-1, op)
	s.alloc.mu.Lock()
	for _, u := range s.alloc.uses {
		c.AddWaits(u.event)
	}
	s.alloc.mu.Unlock()
	c.HostOnly = true
	c.Fn = func() error {
		if f := s.failure.Load(); f != nil && which(f) {
			s.failure.CompareAndSwap(f, nil)
		}
		return nil
	}
	home.Launch(c)
	return home.Record()
}

// Region returns the bytes of elements from to from+n. They may be used after the events of [Borrowed.Waits] and before the work ends.
func (l *Borrowed) Region(from, n int) Region {
	size := l.operand.DType.Size()
	return Region{l.operand.Memory, (l.operand.Offset + from) * size, n * size}
}

// part returns the operand of elements from to from+n.
func (l *Borrowed) part(from, n int) Operand {
	o := l.operand
	o.Offset += from
	o.partial = n < l.numel
	sizes := [...]int{n, 1}
	o.Shape, o.Strides = sizes[:1:1], sizes[1:]
	return o
}

// InBorrowed adds elements from to from+n of borrowed memory as an input. The call must wait for [Borrowed.Waits].
func (c *Call) InBorrowed(l *Borrowed, from, n int) *Call {
	c.Ins = append(c.Ins, l.part(from, n))
	c.Work = max(c.Work, n)
	return c
}

// InBorrowedRows adds rows of borrowed memory as an input: those of length elements that begin at from, from + stride and so on. The call must
// wait for [Borrowed.Waits].
func (c *Call) InBorrowedRows(l *Borrowed, from, rows, length, stride int) *Call {
	c.Ins = append(c.Ins, l.rows(from, rows, length, stride))
	c.Work = max(c.Work, rows*length)
	return c
}

// OutBorrowedRows adds rows of borrowed memory as an output, as [Call.InBorrowedRows].
func (c *Call) OutBorrowedRows(l *Borrowed, from, rows, length, stride int) *Call {
	c.Outs = append(c.Outs, l.rows(from, rows, length, stride))
	c.Work = max(c.Work, rows*length)
	return c
}

// rows returns the operand of rows.
func (l *Borrowed) rows(from, rows, length, stride int) Operand {
	o := l.operand
	o.Offset += from
	o.partial = true
	sizes := [...]int{rows, length, stride, 1}
	o.Shape, o.Strides = sizes[:2:2], sizes[2:]
	return o
}

// InMemory adds elements from to from+n of memory without a tensor as an input. The caller keeps it alive until the call has run.
func (c *Call) InMemory(m Memory, d DType, from, n int) *Call {
	c.Ins = append(c.Ins, m.elements(d, from, n))
	c.Work = max(c.Work, n)
	return c
}

// OutMemory adds elements from to from+n of memory without a tensor as an output, as [Call.InMemory].
func (c *Call) OutMemory(m Memory, d DType, from, n int) *Call {
	c.Outs = append(c.Outs, m.elements(d, from, n))
	c.Work = max(c.Work, n)
	return c
}

// elements returns the operand of elements from to from+n of the memory.
func (m Memory) elements(d DType, from, n int) Operand {
	sizes := [...]int{n, 1}
	return Operand{Memory: m, Offset: from, DType: d, present: true, partial: true, Shape: sizes[:1:1], Strides: sizes[1:]}
}

// OutBorrowed adds elements from to from+n of borrowed memory as an output. The call must wait for [Borrowed.Waits].
func (c *Call) OutBorrowed(l *Borrowed, from, n int) *Call {
	c.Outs = append(c.Outs, l.part(from, n))
	c.Work = max(c.Work, n)
	return c
}
