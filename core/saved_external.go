package core

import (
	"sync"
	"sync/atomic"
)

// ExternalSaver holds saved-tensor hooks of another language, which the engine never calls. Saved tensors wait in a queue until the caller
// takes them with [ExternalSaver.Next] and gives each a key. A backward pass asks its caller for the value of a key (see package autograd).
type ExternalSaver struct {
	// Drop is called with the key of each value that no node needs any more.
	Drop func(key uint64)

	mu      sync.Mutex
	waiting []*ExternalValue
}

var externalWaiting atomic.Int64 // over all ExternalSavers

// ExternalWaiting reports whether tensors saved by the calling thread's nodes are queued for [ExternalSaver.Next].
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

// Forget empties the queue. The nodes then keep those values themselves.
func (f *ExternalSaver) Forget() {
	for f.Next() != nil {
	}
}

// An ExternalValue stands for a saved tensor that another language packs.
type ExternalValue struct {
	of *ExternalSaver

	mu       sync.Mutex
	value    *Tensor // until it is packed
	key      uint64
	released bool
}

// Hooks returns the hooks for [WithSavedHooks].
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

// unpackExternal unpacks a value that the caller never packed, for example because its operation failed half-way.
func unpackExternal(packed any) *Tensor {
	v := packed.(*ExternalValue)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value == nil {
		return ErrorTensor(Errorf(StateError, "saved_tensors_hooks", "another language packed the saved tensor: call backward from that language"))
	}
	return v.value.Alias(false)
}

// Next removes and returns the oldest queued value, or nil.
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

// Value returns a new tensor over the value to pack; nil if its node is gone.
func (v *ExternalValue) Value() *Tensor {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value == nil {
		return nil
	}
	return v.value.Alias(false)
}

// Packed records the key of the packed value and releases the tensor.
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

// Key returns the key of the value; 0 if it was not packed.
func (v *ExternalValue) Key() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.key
}

// Release is called when the node frees its saved tensors.
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

// ExternalValues returns the node's saved values that another language packed.
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

// Unpack passes the unpacked values to the context. The caller still owns them.
func (ctx *BackwardContext) Unpack(values map[*ExternalValue]*Tensor) { ctx.unpacked = values }

// Hooked returns a context derived from c that applies h to saved tensors. [Context.Unhook] ends it.
func (c *Context) Hooked(h *SavedHooks) *Context {
	d := c.derive()
	d.hooks = h
	return d
}

// Unhook ends a context of [Context.Hooked] and returns its parent. Settings changed in it, such as the default dtype, move to the parent.
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
