package core

import "slices"

// Adopt makes t share u's memory, dtype and layout, as assigning to a tensor's data does. t's place in the graph stays: a leaf keeps its
// gradient and hooks. Afterwards t is no view. If t is the result of an operation, its shape and dtype must not change. Adopt waits for
// [Tensor.Use] of t.
func (t *Tensor) Adopt(u *Tensor) error {
	const name = "set_"
	for _, x := range [...]*Tensor{t, u} {
		if x == nil || x.isNumber {
			return Errorf(TypeError, name, "want two tensors, got %v and %v", t, u)
		}
		if err := x.failed(); err != nil {
			return err
		}
	}
	if p, q := t.Parts(), u.Parts(); p != nil || q != nil {
		if p != nil && p.Recorded() || q != nil && q.Recorded() {
			return Errorf(NotImplemented, name, "it cannot be recorded as a graph that a tensor gets another's memory: copy the elements")
		}
		if p == nil || q == nil || p.String() != q.String() || !slices.Equal(t.shape, u.shape) {
			return Errorf(TypeError, name, "want two tensors of one shape and with equal placements, got %v and %v", t, u)
		}
		if err := p.Local().Adopt(q.Local()); err != nil {
			return err
		}
		t.dtype = u.dtype
		return nil
	}
	if !lockUnused(t, u, false) {
		return errReleased(name)
	}
	defer unlockBoth(t, u)
	same := t.dtype == u.dtype && slices.Equal(t.shape, u.shape)
	if meta := t.autograd.Load(); meta != nil && !same {
		if err := meta.reshape(name, u.dtype, u.shape); err != nil {
			return err
		}
	}
	if v := t.view.Swap(nil); v != nil {
		defer v.base.release()
	}
	old := t.storage
	u.storage.Retain()
	t.storage, t.dtype, t.offset = u.storage, u.dtype, u.offset
	t.shape, t.strides = slices.Clone(u.shape), slices.Clone(u.strides) // calls in flight may still read the old slices
	old.Release()
	return nil
}

// reshape gives a leaf's metadata another shape and dtype.
func (meta *AutogradMeta) reshape(name string, d DType, shape []int) error {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if meta.node != nil {
		return Errorf(StateError, name, "the shape and dtype of the result of an operation cannot change, got %v%v, want %v%v", d, shape, meta.dtype, meta.shape)
	}
	meta.dtype, meta.shape = d, slices.Clone(shape)
	if old := meta.accumulate; old != nil { // a backward pass may be using the old node
		old.mu.Lock()
		extra := old.extra
		old.mu.Unlock()
		meta.accumulate = newAccumulate(meta)
		meta.accumulate.extra = extra
	}
	return nil
}

// Exchange swaps memory, dtype, layout and place in the graph of t and u, so that every reference to t sees what u was. FSDP turns a
// sharded parameter into the gathered one this way, and back. Either may be distributed; neither may be a view. Exchange waits for
// [Tensor.Use] of both.
func (t *Tensor) Exchange(u *Tensor) error {
	const op = "exchange"
	for _, x := range [...]*Tensor{t, u} {
		switch {
		case x == nil || x.isNumber:
			return Errorf(TypeError, op, "want two tensors, got %v and %v", t, u)
		case x.failed() != nil:
			return x.failed()
		case x.IsSparse() || x.Parts() != nil && x.Parts().Depth() > 0:
			return x.other.refuse(op)
		}
	}
	if !lockUnused(t, u, true) {
		return errReleased(op)
	}
	defer unlockBoth(t, u)
	if t.view.Load() != nil || u.view.Load() != nil {
		return Errorf(ValueError, op, "got a view of another tensor, %v and %v", t, u)
	}
	t.other, u.other = u.other, t.other
	t.storage, u.storage = u.storage, t.storage
	t.dtype, u.dtype = u.dtype, t.dtype
	t.offset, u.offset = u.offset, t.offset
	// The slices themselves are never written, so calls in flight may still read them.
	t.shape, u.shape = u.shape, t.shape
	t.strides, u.strides = u.strides, t.strides
	t.autograd.Store(u.autograd.Swap(t.autograd.Load()))
	return nil
}
