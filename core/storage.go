package core

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// A Storage is a piece of device memory that tensors share, counted by reference. When the last reference goes, the
// memory returns to the stream it came from, in program order. Storages that are never released are returned by a
// cleanup once the garbage collector finds them.
//
// A storage can be emptied and refilled in place ([Storage.Empty], [Storage.Refill]): tensors and saved values that
// refer to it stay valid.
type Storage struct {
	held      *holding
	refs      atomicCount
	version   atomic.Uint32
	epoch     uint32 // counts the lives of a recycled Storage
	inference bool   // made in inference mode: not versioned, and of no use to derivatives
	failure   atomic.Pointer[failure]

	shared  atomic.Int32 // how many others, such as NumPy arrays, read and write the memory without a stream
	foreign flag         // used on streams other than home since home last waited for them
}

type failure struct {
	epoch   uint32
	err     error
	skipped bool // a change of the contents was left out
}

type foreignUse struct {
	event Event
	write bool
}

// A holding is what a storage holds, apart from it for the cleanup that runs when the storage itself is gone.
type holding struct {
	home     Stream
	memory   Memory
	size     int // bytes asked for
	category Category
	live     flag   // holds memory that must be returned
	free     func() // for memory that is not ours: called when the last reference goes

	mu   sync.Mutex
	uses []foreignUse // on other streams than home, not known to be done
}

// NewStorage returns a storage of the given size on stream s, with one reference.
func NewStorage(s Stream, bytes int, cat Category) (*Storage, error) {
	m, err := s.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return makeStorage(s, m, bytes, cat, nil), nil
}

// WrapStorage returns a storage over memory that belongs to somebody else; release is called when it is no longer used.
func WrapStorage(s Stream, m Memory, release func()) *Storage {
	return makeStorage(s, m, m.Size, External, release)
}

func makeStorage(s Stream, m Memory, bytes int, cat Category, free func()) *Storage {
	st := m.header()
	h := st.held
	h.home, h.memory, h.size, h.category, h.free = s, m, bytes, cat, free
	st.inference = false
	st.refs.set(1)
	if st.version.Load() != 0 {
		st.version.Store(0)
	}
	st.setForeign(len(h.uses) > 0)
	h.count(1)
	h.live.set(true)
	return st
}

// Inference reports whether the storage was made in inference mode.
func (s *Storage) Inference() bool { return s.inference }

// header returns the Storage that last had the memory, or a new one. Its last reference was released, so nothing refers
// to it but calls that have not run yet, which know its epoch; and the cost of registering a cleanup is paid once, not for
// every allocation.
func (m *Memory) header() *Storage {
	if s := m.storage; s != nil {
		m.storage = nil
		return s
	}
	return newHeader()
}

func newHeader() *Storage {
	s := &Storage{held: &holding{}}
	runtime.AddCleanup(s, collected, s.held)
	return s
}

// count adds the memory to the statistics, or takes it out with sign -1.
func (h *holding) count(sign int64) { h.home.Counters().count(h.category, sign*accounted(h.size)) }

// untrack disarms the cleanup and reports whether the memory is still to be returned.
func (h *holding) untrack() bool {
	if !h.live.take() {
		return false
	}
	h.count(-1)
	return true
}

// collected returns the memory of a storage that nobody released.
func collected(h *holding) {
	if h.untrack() {
		h.giveBack(nil)
	}
}

// giveBack returns the memory, with the header that is to be used again for it, or nil.
func (h *holding) giveBack(header *Storage) {
	h.mu.Lock()
	var after []Event
	kept := h.uses[:0]
	for _, u := range h.uses {
		if !u.event.Done() {
			after = append(after, u.event)
			kept = append(kept, u)
		}
	}
	h.uses = nil
	h.mu.Unlock()
	if h.free == nil {
		m := h.memory
		m.storage = header
		if len(kept) > 0 {
			// The home stream waits for them by itself. Another stream that is the first to use the memory in its next life
			// would not know: it only waits for what was launched at home.
			if m.storage == nil {
				m.storage = newHeader()
			}
			m.storage.held.uses = kept
		}
		h.home.Free(m, after...)
		return
	}
	after = append(after, h.home.Record())
	free := h.free
	h.free = nil
	go func() {
		defer func() {
			if v := recover(); v != nil { // of the owner's code, with nobody to tell but who reads what the program prints
				fmt.Fprintf(os.Stderr, "plait: giving back memory that was wrapped: panic: %v\n%s", v, debug.Stack())
			}
		}()
		for _, e := range after {
			e.Wait()
		}
		free()
	}()
}

// Retain adds a reference.
func (s *Storage) Retain() { s.refs.inc() }

// Release drops a reference; the last one returns the memory.
func (s *Storage) Release() {
	switch n := s.refs.dec(); {
	case n > 0:
		return
	case n < 0:
		panic("core: storage released more often than retained")
	}
	s.epoch++ // a failure stays: calls on their way know the old epoch, and must not take the contents for sound
	s.setForeign(false)
	if h := s.held; h.untrack() {
		if h.free == nil {
			h.giveBack(s)
		} else {
			h.giveBack(nil)
		}
	}
}

// Refs returns the number of references.
func (s *Storage) Refs() int { return int(s.refs.load()) }

// Size returns the size in bytes.
func (s *Storage) Size() int { return s.held.size }

// Memory returns the memory behind the storage.
func (s *Storage) Memory() Memory { return s.held.memory }

// Stream returns the stream the memory came from.
func (s *Storage) Stream() Stream { return s.held.home }

// Device returns the device the memory is on.
func (s *Storage) Device() Device { return s.held.home.Device() }

// Version returns how often the contents were changed in place.
func (s *Storage) Version() uint32 { return s.version.Load() }

// Generation returns which use of the storage this is: a storage whose last reference was released is used again for other contents.
func (s *Storage) Generation() uint32 { return s.epoch }

// BumpVersion records a change in place.
func (s *Storage) BumpVersion() { s.version.Add(1) }

// SetVersion sets the version, for code that changes contents in a way that saved values may ignore, such as refilling
// a gathered parameter with the same values.
func (s *Storage) SetVersion(v uint32) { s.version.Store(v) }

// SetCategory moves the storage's bytes to another category of the memory statistics.
func (s *Storage) SetCategory(cat Category) {
	h := s.held
	if h.category == cat || h.category == External {
		return
	}
	live := h.live.load()
	if live {
		h.count(-1)
	}
	h.category = cat
	if live {
		h.count(1)
	}
}

// Empty gives the memory back and leaves the storage without any. Using a tensor on it is an error until Refill.
func (s *Storage) Empty() {
	s.setForeign(false)
	if s.held.untrack() {
		s.held.giveBack(nil)
	}
	s.held.memory = Memory{}
}

// IsEmpty reports whether the storage was emptied.
func (s *Storage) IsEmpty() bool { return !s.held.live.load() }

// Refill allocates the memory of an emptied storage again, with undefined contents.
func (s *Storage) Refill() error {
	if !s.IsEmpty() {
		return nil
	}
	h := s.held
	m, err := h.home.Alloc(h.size)
	if err != nil {
		return err
	}
	if old := m.storage; old != nil {
		h.uses, old.held.uses, m.storage = old.held.uses, nil, nil
		s.setForeign(len(h.uses) > 0)
	}
	h.memory = m
	s.epoch++
	h.count(1)
	h.live.store(true)
	return nil
}

// setForeign sets whether other streams than home use the memory, which is seldom news.
func (s *Storage) setForeign(yes bool) {
	if s.foreign.load() != yes {
		s.foreign.store(yes)
	}
}

// use records that the storage is used on stream by, whose next call must wait for the events appended to waits. It is
// only called when the storage belongs to another stream or has been used on one.
func (s *Storage) use(by Stream, write bool, waits []Event) []Event {
	h := s.held
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.uses[:0]
	for _, u := range h.uses {
		if u.event.Done() {
			continue
		}
		if u.event.Stream() != by && (write || u.write) {
			waits = append(waits, u.event)
			if by == h.home {
				continue // home is ordered after it from now on
			}
		}
		kept = append(kept, u)
	}
	h.uses = kept
	if by != h.home {
		waits = append(waits, h.home.Record())
		h.uses = append(h.uses, foreignUse{event: by.Next(), write: write})
	}
	s.setForeign(len(h.uses) > 0)
	return waits
}

// fail keeps a failure of a life of the storage, unless there is one of a later life: devices may learn of it late.
func (s *Storage) fail(epoch uint32, err error, skipped bool) {
	f := &failure{epoch, err, skipped}
	for old := s.failure.Load(); old == nil || int32(old.epoch-epoch) <= 0; old = s.failure.Load() {
		if s.failure.CompareAndSwap(old, f) {
			return
		}
	}
}

func (s *Storage) failedAt(epoch uint32) error {
	if f := s.failure.Load(); f != nil && f.epoch == epoch {
		return f.err
	}
	return nil
}

// Err returns the execution error that made the contents undefined, as far as execution has come.
func (s *Storage) Err() error { return s.failedAt(s.epoch) }

// Share says that somebody outside, such as a NumPy array, reads and writes the memory from now on, with n 1, or does so
// no more, with n -1. Calls that use a shared storage are done when their launch returns. The first to share must wait
// for earlier calls: see [Storage.Wait].
func (s *Storage) Share(n int32) { s.shared.Add(n) }
