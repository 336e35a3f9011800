package cpu

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/core/backend"
)

const (
	// slabSize is the size of a huge page. The thousands of small tensors of a training step then need few TLB entries.
	slabSize = 2 << 20
	// slabPiece is the largest size that is cut from slabs.
	slabPiece = slabSize / 8
)

// slabs are the huge pages of a device, from which small blocks of all size classes are cut in turn. A slab is returned to the system when
// all its blocks are free.
type slabs struct {
	mu   sync.Mutex
	all  map[uintptr]*slab  // by address
	free [][]unsafe.Pointer // free blocks of slabs in use, by class index
	rest []byte             // unused part of the newest slab
}

type slab struct {
	start unsafe.Pointer
	used  int // blocks in use
}

func slabOf(p unsafe.Pointer) uintptr { return uintptr(p) &^ (slabSize - 1) }

// take returns a block of the size class, or nil. If it needs a new slab it calls more, which may return nil.
func (s *slabs) take(class int, more func() unsafe.Pointer) unsafe.Pointer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := backend.ClassIndex(class); i < len(s.free) && len(s.free[i]) > 0 {
		last := len(s.free[i]) - 1
		p := s.free[i][last]
		s.free[i] = s.free[i][:last]
		s.all[slabOf(p)].used++
		return p
	}
	size := class
	if class%pageSize == 0 {
		size += 64 // page-aligned neighbours would conflict in caches that compare the offset in the page first
	}
	if len(s.rest) < size {
		p := more()
		if p == nil {
			return nil
		}
		if s.all == nil {
			s.all = map[uintptr]*slab{}
		}
		s.all[slabOf(p)] = &slab{start: p}
		s.rest = unsafe.Slice((*byte)(p), slabSize)
	}
	p := unsafe.Pointer(&s.rest[0])
	s.rest = s.rest[size:]
	s.all[slabOf(p)].used++
	return p
}

// put takes a block back. It reports whether the block belongs to a slab, and returns that slab's memory if it is empty now.
func (s *slabs) put(p unsafe.Pointer, class int) (ours bool, empty unsafe.Pointer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	base := slabOf(p)
	of := s.all[base]
	if of == nil {
		return false, nil
	}
	if of.used--; of.used > 0 {
		i := backend.ClassIndex(class)
		for len(s.free) <= i {
			s.free = append(s.free, nil)
		}
		s.free[i] = append(s.free[i], p)
		return true, nil
	}
	delete(s.all, base)
	for i, list := range s.free {
		s.free[i] = slices.DeleteFunc(list, func(q unsafe.Pointer) bool { return slabOf(q) == base })
	}
	if len(s.rest) > 0 && slabOf(unsafe.Pointer(&s.rest[0])) == base {
		s.rest = nil
	}
	return true, of.start
}
