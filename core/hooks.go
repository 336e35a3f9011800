package core

import (
	"sync"
	"sync/atomic"
)

// A Hook runs on a gradient during backward. A non-nil result replaces the gradient. External is set if the hook belongs to another
// language: backward hands it to its caller.
type Hook struct {
	Fn       func(grad *Tensor) *Tensor
	External uint64
	Blind    bool // Fn does not look at the gradient, and returns nil or an error; see [BackwardContext.Hidden]
	// Drop, if not nil, runs once: when the hook is removed, or the object that it is registered on is gone.
	Drop func()
	// Failed, if not nil, runs when a backward pass that would add to the leaf's gradient ends early: with an error, or because its caller
	// gave up. It applies to hooks that run after a leaf's accumulation. It must not block: the caller may hold another language's lock.
	Failed func(cause error)
}

// A NodeHook runs before a node's derivative on the gradients of its outputs, or after it on those of its inputs. A non-nil result replaces
// them. For a hook after the node, the argument after holds the gradients of the outputs.
type NodeHook struct {
	Fn       func(grads, after []*Tensor) []*Tensor
	External uint64
	Drop     func() // as in [Hook]
}

func (h Hook) dropped() {
	if h.Drop != nil {
		h.Drop()
	}
}

func (h NodeHook) dropped() {
	if h.Drop != nil {
		h.Drop()
	}
}

// A HookList is an ordered set of hooks on gradients.
type HookList = list[Hook]

// A NodeHookList is an ordered set of hooks around a node.
type NodeHookList = list[NodeHook]

type entry[T any] struct {
	id   uint64
	hook T
}

type list[T interface{ dropped() }] struct {
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
	return func() { l.remove(func(e entry[T]) bool { return e.id == id }) }
}

func (l *list[T]) remove(which func(entry[T]) bool) {
	l.mu.Lock()
	var kept, gone []entry[T]
	for _, e := range l.entries {
		if which(e) {
			gone = append(gone, e)
		} else {
			kept = append(kept, e)
		}
	}
	l.entries = kept
	l.size.Store(int32(len(kept)))
	l.mu.Unlock()
	for _, e := range gone {
		e.hook.dropped()
	}
}

// clear drops every hook, because the object that they are registered on is gone.
func (l *list[T]) clear() {
	if l.size.Load() > 0 {
		l.remove(func(entry[T]) bool { return true })
	}
}

// Len returns the number of hooks.
func (l *list[T]) Len() int { return int(l.size.Load()) }

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
