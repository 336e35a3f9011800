package core

import (
	"slices"
	"sync"
	"sync/atomic"
)

type atomicCount struct{ n atomic.Int32 }

func (c *atomicCount) set(n int32) { c.n.Store(n) }
func (c *atomicCount) inc()        { c.n.Add(1) }

// dec reports whether the count reached zero.
func (c *atomicCount) dec() bool { return c.n.Add(-1) == 0 }

func (c *atomicCount) incUnlessZero() bool {
	for {
		n := c.n.Load()
		if n <= 0 {
			return false
		}
		if c.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// A Hook runs on a gradient during backward. Its result, if not nil, replaces the gradient. A hook with Foreign set
// belongs to another language: backward hands it to its caller.
type Hook struct {
	Fn      func(grad *Tensor) *Tensor
	Foreign uint64
}

// A NodeHook runs on the gradients around a node during backward. Its result, if not nil, replaces them.
type NodeHook struct {
	Fn      func(grads []*Tensor) []*Tensor
	Foreign uint64
}

// A HookList is an ordered set of hooks on gradients.
type HookList = list[Hook]

// A NodeHookList is an ordered set of hooks around a node.
type NodeHookList = list[NodeHook]

type entry[T any] struct {
	id   uint64
	hook T
}

type list[T any] struct {
	mu      sync.Mutex
	next    uint64
	entries []entry[T]
	size    atomic.Int32
}

// Add registers a hook and returns the function that removes it.
func (l *list[T]) Add(h T) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.entries = append(l.entries, entry[T]{id, h})
	l.size.Store(int32(len(l.entries)))
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries = slices.DeleteFunc(slices.Clone(l.entries), func(e entry[T]) bool { return e.id == id })
		l.size.Store(int32(len(l.entries)))
	}
}

// All returns the hooks in the order of registration.
func (l *list[T]) All() []T {
	if l.size.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]T, len(l.entries))
	for i, e := range l.entries {
		out[i] = e.hook
	}
	return out
}
