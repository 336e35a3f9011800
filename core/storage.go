package core

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// A Storage is a reference-counted piece of device memory that tensors share. The last Release returns the memory to its stream, in program
// order. If a storage is never released, a cleanup returns the memory once the garbage collector finds it.
//
// A storage can be emptied and refilled in place ([Storage.Empty], [Storage.Refill]): tensors and saved values that
// refer to it stay valid.
type Storage struct {
	alloc     *allocation
	refs      atomicCount
	version   atomic.Uint32
	unseen    atomic.Uint32 // how many of the changes were made through tensors with a count of their own: see [Tensor.Data]
	epoch     uint32        // counts reuses of a recycled Storage
	inference bool          // made in inference mode: no versions, and cannot be saved for backward
	failure   atomic.Pointer[failure]
	recovery  atomic.Pointer[Event] // the end of the last Recover

	shared  atomic.Int32 // number of users outside the engine, such as NumPy arrays, that need no stream
	lent    atomic.Int32 // those of them that keep the address
	foreign flag         // used on other streams since home last waited for them
}

type failure struct {
	epoch   uint32
	err     error
	skipped bool // a later change of the contents was skipped
	// The contents are valid and only lack changes that were skipped or did not start.
	unchanged bool
}

type foreignUse struct {
	event Event
	write bool
}

// An allocation is the state that must outlive the Storage: the cleanup gets it when the Storage is gone.
type allocation struct {
	home     Stream
	memory   Memory
	size     int // requested bytes
	category Category
	live     flag   // has memory that must be returned
	free     func() // for wrapped memory: runs when the last reference is dropped
	backing  any    // what other code knows about the memory

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

// WrapStorage returns a storage over memory that other code owns. release is called when it is no longer used, which may be within the
// [Storage.Release] of the last reference: it must be quick, and must not take a lock that is held there.
func WrapStorage(s Stream, m Memory, release func()) *Storage {
	if m.recycled == nil {
		m.recycled, _ = spareHeaders.Get().(*Storage)
	}
	return makeStorage(s, m, m.Size, External, release)
}

// spareHeaders are Storages of wrapped memory that is back with its owner.
var spareHeaders sync.Pool

func makeStorage(s Stream, m Memory, bytes int, cat Category, free func()) *Storage {
	st := m.header()
	h := st.alloc
	h.home, h.memory, h.size, h.category, h.free = s, m, bytes, cat, free
	st.inference = false
	st.refs.set(1)
	if st.version.Load() != 0 {
		st.version.Store(0)
		st.unseen.Store(0)
	}
	st.setForeign(len(h.uses) > 0)
	h.count(1)
	h.live.set(true)
	return st
}

// Inference reports whether the storage was made in inference mode.
func (s *Storage) Inference() bool { return s.inference }

// header returns the Storage that last had the memory, or a new one. Only calls that have not run yet refer to the old one, and they know
// its epoch. So the cost of AddCleanup is paid once, not for every allocation.
func (m *Memory) header() *Storage {
	if s := m.recycled; s != nil {
		m.recycled = nil
		return s
	}
	return newHeader()
}

func newHeader() *Storage {
	s := &Storage{alloc: &allocation{}}
	runtime.AddCleanup(s, collected, s.alloc)
	return s
}

// count adds the memory to the statistics, or takes it out with sign -1.
func (h *allocation) count(sign int64) { h.home.Counters().count(h.category, sign*accounted(h.size)) }

// untrack disarms the cleanup and reports whether the caller must return the memory.
func (h *allocation) untrack() bool {
	if !h.live.take() {
		return false
	}
	h.count(-1)
	return true
}

// collected returns the memory of a storage that was never released.
func collected(h *allocation) {
	if h.untrack() {
		h.giveBack(nil)
	}
}

// giveBack returns the memory, with the header to reuse, or nil.
func (h *allocation) giveBack(header *Storage) {
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
		m.recycled = header
		if len(kept) > 0 {
			// The home stream waits for these uses itself. Another stream that is the first to use the memory after its reuse waits only
			// for what was launched on the home stream, so the uses stay with the header.
			if m.recycled == nil {
				m.recycled = newHeader()
			}
			m.recycled.alloc.uses = kept
		}
		h.home.Free(m, after...)
		return
	}
	after = append(after, h.home.Record())
	free := h.free
	h.free = nil
	if slices.ContainsFunc(after, func(e Event) bool { return !e.Done() }) {
		go func() {
			for _, e := range after {
				e.Wait()
			}
			release(free)
		}()
		return
	}
	release(free)
	if header != nil && h.backing == nil {
		header.shared.Store(0)
		header.lent.Store(0)
		spareHeaders.Put(header)
	}
}

// release calls the function that an owner of wrapped memory gave.
func release(free func()) {
	defer func() {
		if v := recover(); v != nil { // the owner's code panicked, and no caller is left to return an error to
			fmt.Fprintf(os.Stderr, "plait: panic in the release function of wrapped memory: %v\n%s", v, debug.Stack())
		}
	}()
	free()
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
	s.epoch++ // a failure stays: calls in flight know the old epoch, and must not treat the contents as valid
	s.setForeign(false)
	if h := s.alloc; h.untrack() {
		h.giveBack(s)
	}
}

// Refs returns the number of references.
func (s *Storage) Refs() int { return int(s.refs.load()) }

// Size returns the size in bytes.
func (s *Storage) Size() int { return s.alloc.size }

// Memory returns the storage's memory.
func (s *Storage) Memory() Memory { return s.alloc.memory }

// Stream returns the stream the memory came from.
func (s *Storage) Stream() Stream { return s.alloc.home }

// Device returns the device the memory is on.
func (s *Storage) Device() Device { return s.alloc.home.Device() }

// Version returns how often the contents were changed in place.
func (s *Storage) Version() uint32 { return s.version.Load() }

// Generation counts the reuses of this Storage. After its last release a Storage is recycled for other contents.
func (s *Storage) Generation() uint32 { return s.epoch }

// BumpVersion records a change in place.
func (s *Storage) BumpVersion() { s.version.Add(1) }

// SetVersion sets the version. It is for changes that saved tensors may ignore, such as gathering a parameter again with the same values.
func (s *Storage) SetVersion(v uint32) { s.version.Store(v) }

// SetCategory moves the storage's bytes to another category of the memory statistics.
func (s *Storage) SetCategory(cat Category) {
	h := s.alloc
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

// Empty returns the memory to the stream. The storage has none until Refill; using a tensor on it is an error.
func (s *Storage) Empty() {
	s.setForeign(false)
	if s.alloc.untrack() {
		s.alloc.giveBack(nil)
	}
	s.alloc.memory = Memory{}
	if s.alloc.backing != nil {
		s.alloc.backing = nil
		s.shared.Add(-1)
	}
}

// IsEmpty reports whether the storage was emptied.
func (s *Storage) IsEmpty() bool { return !s.alloc.live.load() }

// Refill allocates the memory of an emptied storage again, with undefined contents.
func (s *Storage) Refill() error {
	if !s.IsEmpty() {
		return nil
	}
	h := s.alloc
	m, err := h.home.Alloc(h.size)
	if err != nil {
		return err
	}
	if old := m.recycled; old != nil {
		h.uses, old.alloc.uses, m.recycled = old.alloc.uses, nil, nil
		s.setForeign(len(h.uses) > 0)
	}
	h.memory = m
	s.epoch++
	h.count(1)
	h.live.store(true)
	return nil
}

// setForeign sets the flag foreign. It avoids the store where the value is the same, which is usual.
func (s *Storage) setForeign(yes bool) {
	if s.foreign.load() != yes {
		s.foreign.store(yes)
	}
}

// use records a use of the storage on stream by. It appends to waits the events that by's next call must wait for. It is only called if the
// storage belongs to another stream or was used on one.
func (s *Storage) use(by Stream, write bool, waits []Event) []Event {
	h := s.alloc
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
				continue // home is ordered after u from now on
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

// fail records a failure of the given epoch, unless a later epoch has one: devices may report failures late.
func (s *Storage) fail(epoch uint32, err error, skipped bool) {
	f := &failure{epoch: epoch, err: err, skipped: skipped}
	for old := s.failure.Load(); old == nil || int32(old.epoch-epoch) <= 0; old = s.failure.Load() {
		if s.failure.CompareAndSwap(old, f) {
			return
		}
	}
}

// failUnchanged records that a change of the contents did not happen because of err: it was skipped, or did not start. Contents that were
// undefined stay so, and a storage that has failed keeps its first error.
func (s *Storage) failUnchanged(epoch uint32, err error, skipped bool) {
	for {
		f, old := &failure{epoch, err, skipped, true}, s.failure.Load()
		switch {
		case old == nil:
		case old.epoch == epoch:
			f = &failure{epoch, old.err, old.skipped || skipped, old.unchanged}
		case int32(old.epoch-epoch) > 0:
			return
		}
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

// Err returns the execution error that made the contents undefined, as far as execution has progressed.
func (s *Storage) Err() error { return s.failedAt(s.epoch) }

// Share counts users outside the engine, such as NumPy arrays: n is 1 for a new user, -1 when one ends. Calls on a shared storage are done
// when Launch returns. The first user must wait for earlier calls: see [Storage.Wait].
func (s *Storage) Share(n int32) {
	refuseRecording("the step shares the memory of a tensor with code outside the engine")
	s.shared.Add(n)
}
