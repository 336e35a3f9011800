package core

import (
	"runtime"
	"time"
)

// The states of a tensor. Code that changes the tensor's memory, layout or view, or releases it, or takes a longer reference to its memory,
// locks the tensor for a few instructions. It must not block meanwhile.
const (
	tensorLive uint32 = iota
	tensorLocked
	tensorGone // released
)

func (t *Tensor) isReleased() bool { return t.state.Load() == tensorGone }

// lock locks the tensor's memory and layout until unlock. It returns false if the tensor was released.
func (t *Tensor) lock() bool { return t.transition(tensorLocked) }

func (t *Tensor) unlock() { t.state.Store(tensorLive) }

// markReleased marks the tensor as released. It returns false if it was released before.
func (t *Tensor) markReleased() bool { return t.transition(tensorGone) }

// transition moves the tensor from live to another state. It returns false if the tensor was released.
func (t *Tensor) transition(to uint32) bool {
	for !t.state.CompareAndSwap(tensorLive, to) {
		if t.isReleased() {
			return false
		}
		runtime.Gosched() // locked by another thread
	}
	return true
}

// lockBoth locks two tensors. If one of them was released it returns false and locks none.
func lockBoth(t, u *Tensor) bool {
	for {
		if !t.lock() {
			return false
		}
		if t == u || u.state.CompareAndSwap(tensorLive, tensorLocked) {
			return true
		}
		t.unlock() // another thread may have locked u and wait for t
		if u.isReleased() {
			return false
		}
		runtime.Gosched()
	}
}

func unlockBoth(t, u *Tensor) {
	t.unlock()
	if t != u {
		u.unlock()
	}
}

// A pinned is a tensor's memory and layout at the time of pin, with a reference to the memory.
type pinned struct {
	storage *Storage
	dtype   DType
	shape   []int
	strides []int
	offset  int
}

// pin returns the tensor's memory and layout for a reader that may block, while other threads may give the tensor other memory. Call unpin
// afterwards. The storage is nil for a number. The errors are those of [Tensor.Usable].
func (t *Tensor) pin(op string) (pinned, error) {
	switch {
	case t == nil:
		return pinned{}, Errorf(TypeError, op, "got a nil tensor")
	case t.isNumber:
		return pinned{dtype: t.dtype}, nil
	case t.other != nil:
		return pinned{}, t.other.refuse(op)
	case !t.lock():
		return pinned{}, errReleased(op)
	}
	p := pinned{t.storage, t.dtype, t.shape, t.strides, t.offset}
	p.storage.Retain()
	t.unlock()
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

// Use makes [Tensor.Adopt] and [Tensor.Exchange] wait until Unuse before they change the tensor. It returns false if there is nothing to
// protect, as for a number.
func (t *Tensor) Use() bool {
	if t == nil || t.other != nil || !t.lock() {
		return false
	}
	t.users.Add(1)
	t.unlock()
	return true
}

// Unuse ends a [Tensor.Use].
func (t *Tensor) Unuse() { t.users.Add(-1) }

// lockUnused locks both tensors once no [Tensor.Use] of t, or with both of either, is in progress.
func lockUnused(t, u *Tensor, both bool) bool {
	used := func() bool { return t.users.Load() > 0 || both && u.users.Load() > 0 }
	for lockBoth(t, u) {
		if !used() {
			return true
		}
		unlockBoth(t, u)
		WithoutForeignLock(func() {
			for pause := time.Microsecond; used(); pause = min(2*pause, time.Millisecond) {
				time.Sleep(pause)
			}
		})
	}
	return false
}
