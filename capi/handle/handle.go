// Package handle gives Go values integer names, so that C and Python can hold them.
//
// A handle is a positive int64 that is never used for two values: it names a slot and the slot's generation. A negative
// one names an error, 0 stands for no value. Looking a handle up takes no lock; a handle that was released, or that
// never was one, is not found.
package handle

import (
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// A Table names values of one type.
type Table[T any] struct {
	kind   int64
	mu     sync.Mutex
	free   []int64
	next   int64
	chunks [maxChunks]atomic.Pointer[chunk[T]]
	count  atomic.Int64
	mark   func(v *T) int64 // further bits of the handles
}

const (
	chunkBits = 12
	chunkSize = 1 << chunkBits
	maxChunks = 1 << 14
	indexBits = 26 // chunkBits and the bits of maxChunks
	indexMask = 1<<indexBits - 1
	genBits   = 32
	genMask   = 1<<genBits - 1
	kindShift = indexBits + genBits
	// dead marks the generation of a slot that holds nothing.
	dead = 1 << 40
)

type chunk[T any] [chunkSize]slot[T]

type slot[T any] struct {
	generation atomic.Int64
	value      atomic.Pointer[T]
}

// Distributed is set in the handles of distributed tensors, and Sparse in those of sparse ones.
const (
	Distributed int64 = 1 << 60
	Sparse      int64 = 1 << 61
)

// The kinds of handles: each table's handles carry one.
const (
	kindTensor int64 = iota
	kindObject
	kindError
)

// Tensors names tensors.
var Tensors = Table[core.Tensor]{kind: kindTensor, mark: func(t *core.Tensor) int64 {
	switch p := t.Parts(); {
	case p == nil || p.Depth() > 0 || p.Recorded(): // of the same class as the tensors that they are made of
		return 0
	case p.Sparse():
		return Sparse
	}
	return Distributed
}}

// Objects names everything else that is not an error: generators, streams, backward passes, optimisers.
var Objects = Table[any]{kind: kindObject}

var errors = Table[error]{kind: kindError}

// Add names v.
func (t *Table[T]) Add(v *T) int64 {
	t.mu.Lock()
	var i int64
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = t.next
		if i > indexMask {
			t.mu.Unlock()
			panic("handle: more than 67 million values at once")
		}
		t.next++
		if t.chunks[i>>chunkBits].Load() == nil {
			t.chunks[i>>chunkBits].Store(new(chunk[T]))
		}
	}
	t.mu.Unlock()
	s := &t.chunks[i>>chunkBits].Load()[i&(chunkSize-1)]
	g := s.generation.Load()&genMask + 1
	if g > genMask {
		g = 1
	}
	s.value.Store(v)
	s.generation.Store(g)
	t.count.Add(1)
	h := t.kind<<kindShift | g<<indexBits | i
	if t.mark != nil {
		h |= t.mark(v)
	}
	return h
}

func (t *Table[T]) slot(h int64) *slot[T] {
	if h &^= Distributed | Sparse; h <= 0 || h>>kindShift != t.kind {
		return nil
	}
	c := t.chunks[h&indexMask>>chunkBits].Load()
	if c == nil {
		return nil
	}
	return &c[h&(chunkSize-1)]
}

// Get returns the value that h names, or nil.
func (t *Table[T]) Get(h int64) *T {
	s := t.slot(h)
	if s == nil {
		return nil
	}
	v := s.value.Load()
	if s.generation.Load() != h>>indexBits&genMask {
		return nil
	}
	return v
}

// Take ends the life of h and returns the value it named, or nil.
func (t *Table[T]) Take(h int64) *T {
	s := t.slot(h)
	if s == nil {
		return nil
	}
	g := h >> indexBits & genMask
	v := s.value.Load()
	// The generation moves first: of two callers that take the same handle one wins, and whoever has looked up the value
	// of a new owner finds it changed.
	if v == nil || !s.generation.CompareAndSwap(g, g|dead) {
		return nil
	}
	s.value.Store(nil)
	t.count.Add(-1)
	t.mu.Lock()
	t.free = append(t.free, h&indexMask)
	t.mu.Unlock()
	return v
}

// Len returns how many values have names.
func (t *Table[T]) Len() int64 { return t.count.Load() }

// Object returns the object of type T that h names, and false if h does not name one.
func Object[T any](h int64) (v T, ok bool) {
	p := Objects.Get(h)
	if p == nil {
		return v, false
	}
	v, ok = (*p).(T)
	return v, ok
}

// AddObject names v.
func AddObject(v any) int64 { return Objects.Add(&v) }

// AddError names err by a negative handle.
func AddError(err error) int64 { return -errors.Add(&err) }

// Error returns the error that the negative h names, or nil.
func Error(h int64) error {
	if p := errors.Get(-h); p != nil {
		return *p
	}
	return nil
}

// TakeError ends the life of the error that h names.
func TakeError(h int64) { errors.Take(-h) }

// Errors returns how many errors have names.
func Errors() int64 { return errors.Len() }
