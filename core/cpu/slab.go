package cpu

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/core/backend"
)

const (
	// slabSize is that of a huge page, where a processor has such: the thousands of small tensors of a training step lie on
	// a few of them. On pages of their own it would look for their addresses longer than it computes.
	slabSize = 2 << 20
	// slabPiece is the size up to which pieces are cut from slabs.
	slabPiece = slabSize / 8
)

// slabs are the memory of a device from which small pieces of all classes are cut, one after the other. A slab goes back to
// the system when all its pieces have come back.
type slabs struct {
	mu   sync.Mutex
	all  map[uintptr]*slab  // by address
	free [][]unsafe.Pointer // pieces that came back while others of their slab are in use, by class index
	rest []byte             // what is left of the newest slab
}

type slab struct {
	start unsafe.Pointer
	used  int // pieces that have not come back
}

func slabOf(p unsafe.Pointer) uintptr { return uintptr(p) &^ (slabSize - 1) }

// take returns a piece of the class, or nil. It asks for a slab, which may be nil, where it has no room.
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
	room := class
	if class%pageSize == 0 {
		room += 64 // neighbours do not begin at the same place in their pages: processors tell addresses apart by that first
	}
	if len(s.rest) < room {
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
	s.rest = s.rest[room:]
	s.all[slabOf(p)].used++
	return p
}

// give takes a piece back. It reports whether the piece is of a slab, and returns the slab if it is not used any more.
func (s *slabs) give(p unsafe.Pointer, class int) (ours bool, empty unsafe.Pointer) {
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
