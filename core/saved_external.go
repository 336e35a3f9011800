package core

import (
	"sync"
	"sync/atomic"
)

// ExternalSaver are hooks on saved values that belong to another language, which is never called: what nodes save waits in a
// queue until the caller takes it, with [ExternalSaver.Next], and says which key stands for it; a backward pass asks its caller
// for the value with that key (see package autograd).
type ExternalSaver struct {
	// Drop is called with the key of each value that no node needs any more.
	Drop func(key uint64)

	mu      sync.Mutex
	waiting []*ExternalValue
}

var externalWaiting atomic.Int64 // over all of them

// ExternalWaiting reports whether nodes recorded by the calling thread saved values that wait for [ExternalSaver.Next].
func ExternalWaiting() bool {
	if externalWaiting.Load() == 0 {
		return false
	}
	h := CurrentContext().hooks
	return h != nil && h.External != nil && h.External.waits()
}

func (f *ExternalSaver) waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting) > 0
}

// Forget makes nodes keep by themselves what waits.
func (f *ExternalSaver) Forget() {
	for f.Next() != nil {
	}
}

// A ExternalValue stands for a value that a node saved.
type ExternalValue struct {
	of *ExternalSaver

	mu       sync.Mutex
	value    *Tensor // until it was packed
	key      uint64
	released bool
}

// Hooks returns the hooks to run with [WithSavedHooks].
func (f *ExternalSaver) Hooks() *SavedHooks {
	return &SavedHooks{Pack: f.pack, Unpack: unpackExternal, External: f}
}

func (f *ExternalSaver) pack(t *Tensor) any {
	v := &ExternalValue{of: f, value: t.Alias(false).Keep()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, v)
	externalWaiting.Add(1)
	return v
}

// unpackExternal is for a value that the caller never packed, such as one whose operation failed half-way.
func unpackExternal(packed any) *Tensor {
	v := packed.(*ExternalValue)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value == nil {
		return ErrorTensor(Errorf(StateError, "saved_tensors_hooks", "the value belongs to another language, whose backward must be used"))
	}
	return v.value.Alias(false)
}

// Next returns the oldest value that waits to be packed, or nil.
func (f *ExternalSaver) Next() *ExternalValue {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		return nil
	}
	v := f.waiting[0]
	f.waiting = f.waiting[1:]
	externalWaiting.Add(-1)
	return v
}

// Value returns a new tensor over the value to be packed; nil if its node has gone.
func (v *ExternalValue) Value() *Tensor {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value == nil {
		return nil
	}
	return v.value.Alias(false)
}

// Packed says that the key stands for the value, which is let go of.
func (v *ExternalValue) Packed(key uint64) {
	v.mu.Lock()
	value, released := v.value, v.released
	v.value, v.key = nil, key
	v.mu.Unlock()
	value.Release()
	if released {
		v.of.Drop(key)
	}
}

// Key returns the key that stands for the value; 0 if it was not packed.
func (v *ExternalValue) Key() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.key
}

// Release is called when the node frees what it saved.
func (v *ExternalValue) Release() {
	v.mu.Lock()
	value, key := v.value, v.key
	v.value, v.released = nil, true
	v.mu.Unlock()
	value.Release()
	if key != 0 {
		v.of.Drop(key)
	}
}

// ExternalValues returns the saved values of the node that another language has packed.
func (n *Node) ExternalValues() []*ExternalValue {
	var out []*ExternalValue
	for ; n != nil; n = n.inner {
		if !n.externalSaved {
			continue
		}
		n.mu.Lock()
		for i := range n.saved {
			if v, ok := n.saved[i].packed.(*ExternalValue); ok && v.Key() != 0 {
				out = append(out, v)
			}
		}
		n.mu.Unlock()
	}
	return out
}

// Unpack gives the context what the caller answered for foreign values; the context does not take it over.
func (ctx *BackwardContext) Unpack(values map[*ExternalValue]*Tensor) { ctx.unpacked = values }

// Hooked returns a copy of c whose nodes' saved values go through h. [Context.Unhook] ends it.
func (c *Context) Hooked(h *SavedHooks) *Context {
	d := c.derive()
	d.hooks = h
	return d
}

// Unhook gives up a context that [Context.Hooked] returned, and returns the one it was made from. What was set in it,
// such as a default dtype, stays set.
func (c *Context) Unhook() *Context {
	p := c.parent
	if c.dtype != p.dtype {
		p.dtype = c.dtype
	}
	if c.device != p.device {
		p.device = c.device
	}
	c.Free()
	return p
}
