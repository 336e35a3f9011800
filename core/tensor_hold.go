package core

import (
	"runtime"
	"time"
)

// The states of a tensor. What gives it another memory, layout or place among views, or ends its life, and what takes a reference
// to its memory for longer than an operation, hold it, a few instructions long and without waiting for anything.
const (
	tensorLive uint32 = iota
	tensorHeld
	tensorGone // released
)

func (t *Tensor) isReleased() bool { return t.state.Load() == tensorGone }

// hold keeps others from changing which memory the tensor has, until letGo. It returns false if the tensor was released.
func (t *Tensor) hold() bool { return t.leave(tensorHeld) }

func (t *Tensor) letGo() { t.state.Store(tensorLive) }

// end makes the tensor one that was released. It returns false if it was one before.
func (t *Tensor) end() bool { return t.leave(tensorGone) }

// leave moves the tensor from the live state to another, and returns false if it was released.
func (t *Tensor) leave(to uint32) bool {
	for !t.state.CompareAndSwap(tensorLive, to) {
		if t.isReleased() {
			return false
		}
		runtime.Gosched() // held by another thread
	}
	return true
}

// holdBoth is hold of two tensors. It returns false, and holds none, if one was released.
func holdBoth(t, u *Tensor) bool {
	for {
		if !t.hold() {
			return false
		}
		if t == u || u.state.CompareAndSwap(tensorLive, tensorHeld) {
			return true
		}
		t.letGo() // another thread may hold u and wait for t
		if u.isReleased() {
			return false
		}
		runtime.Gosched()
	}
}

func letGoBoth(t, u *Tensor) {
	t.letGo()
	if t != u {
		u.letGo()
	}
}

// A pinned is the memory and layout that a tensor had when it was pinned, with a reference to the memory.
type pinned struct {
	storage *Storage
	dtype   DType
	shape   []int
	strides []int
	offset  int
}

// pin returns the tensor's memory and layout for somebody who reads it, perhaps waiting first, while other threads may give the tensor
// another memory. Unpin it afterwards. The storage is nil for a number. The errors are those of [Tensor.Usable].
func (t *Tensor) pin(op string) (pinned, error) {
	switch {
	case t == nil:
		return pinned{}, Errorf(TypeError, op, "got a nil tensor")
	case t.isNumber:
		return pinned{dtype: t.dtype}, nil
	case t.other != nil:
		return pinned{}, t.other.err
	case !t.hold():
		return pinned{}, errReleased(op)
	}
	p := pinned{t.storage, t.dtype, t.shape, t.strides, t.offset}
	p.storage.Retain()
	t.letGo()
	if p.storage.IsEmpty() {
		if err := refill(op, p.storage, p.shape); err != nil {
			p.unpin()
			return pinned{}, err
		}
	}
	return p, nil
}

func (p *pinned) unpin() {
	if p.storage != nil {
		p.storage.Release()
	}
}

// Use keeps [Tensor.Adopt] and [Tensor.Exchange] from giving the tensor another memory until Unuse: they wait. It returns false if there is nothing to
// keep, as for a number.
func (t *Tensor) Use() bool {
	if t == nil || t.other != nil || !t.hold() {
		return false
	}
	t.users.Add(1)
	t.letGo()
	return true
}

// Unuse ends what [Tensor.Use] began.
func (t *Tensor) Unuse() { t.users.Add(-1) }

// holdUnused is holdBoth that waits until nobody uses t, or, with both, either.
func holdUnused(t, u *Tensor, both bool) bool {
	used := func() bool { return t.users.Load() > 0 || both && u.users.Load() > 0 }
	for holdBoth(t, u) {
		if !used() {
			return true
		}
		letGoBoth(t, u)
		Waiting(func() {
			for pause := time.Microsecond; used(); pause = min(2*pause, time.Millisecond) {
				time.Sleep(pause)
			}
		})
	}
	return false
}
