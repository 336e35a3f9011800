package core

import (
	"runtime"
	"sync"
)

// A Scope releases, when it ends, every tensor made inside it that was not kept.
type Scope struct {
	id      uint32
	tensors []*Tensor
	parent  *Scope
}

var scopes table[Scope]

var scopePool = sync.Pool{New: func() any { return new(Scope) }}

func init() { scopes.add(&Scope{}) } // id 0 means no scope

// RunScope runs fn and then releases every tensor that operations made inside fn, except those that fn returns. The returned tensors move
// to the enclosing scope, if there is one.
func RunScope(fn func() []*Tensor) []*Tensor {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := scopePool.Get().(*Scope)
	s.id = scopes.add(s)
	old := CurrentMode()
	s.parent = old.scope()
	SwapMode(old.withScope(s))
	var kept []*Tensor
	defer func() {
		SwapMode(old)
		s.end(kept)
	}()
	kept = fn()
	return kept
}

// Tidy runs fn and releases every tensor that operations made inside it, such as the intermediates of a training step. Use [Tensor.Keep]
// for tensors that must outlive it.
func Tidy(fn func()) {
	RunScope(func() []*Tensor { fn(); return nil })
}

func (s *Scope) end(returned []*Tensor) {
	for _, t := range returned {
		if t != nil {
			t.escapes = true
		}
	}
	for i, t := range s.tensors {
		switch {
		case t.kept:
		case !t.escapes:
			t.Release()
		case s.parent != nil:
			s.parent.tensors = append(s.parent.tensors, t)
		}
		s.tensors[i] = nil
	}
	for _, t := range returned {
		if t != nil {
			t.escapes = false
		}
	}
	scopes.remove(s.id)
	s.tensors, s.parent, s.id = s.tensors[:0], nil, 0
	scopePool.Put(s)
}

// Keep removes t from all scopes: it lives until it is released or garbage-collected. It returns t.
func (t *Tensor) Keep() *Tensor {
	t.kept = true
	return t
}
