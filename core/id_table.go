package core

import (
	"sync"
	"sync/atomic"
)

// A table maps small ids to objects. The thread-local mode lies in C memory, which may not hold Go pointers, so it holds ids. Reading takes
// no lock.
type table[T any] struct {
	mu    sync.Mutex
	free  []uint32
	slots atomic.Pointer[[]atomic.Pointer[T]]
	next  uint32
}

func (t *table[T]) add(v *T) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var id uint32
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		id = t.next
		t.next++
	}
	old := t.slots.Load()
	if old == nil || int(id) >= len(*old) {
		grown := make([]atomic.Pointer[T], 2*id+16)
		if old != nil {
			for i := range *old {
				grown[i].Store((*old)[i].Load())
			}
		}
		t.slots.Store(&grown)
		old = &grown
	}
	(*old)[id].Store(v)
	return id
}

func (t *table[T]) get(id uint32) *T {
	s := t.slots.Load()
	if s == nil || int(id) >= len(*s) {
		return nil
	}
	return (*s)[id].Load()
}

func (t *table[T]) remove(id uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.slots.Load())[id].Store(nil)
	t.free = append(t.free, id)
}
