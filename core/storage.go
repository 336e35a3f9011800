package core

import (
	"runtime"
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
	memory    Memory
	size      int // bytes asked for
	home      Stream
	refs      atomic.Int32
	version   atomic.Uint32
	epoch     uint32 // counts the lives of a recycled Storage
	category  Category
	inference bool // made in inference mode: not versioned, and of no use to derivatives
	failure   atomic.Pointer[failure]

	shared  atomic.Int32 // how many others, such as NumPy arrays, read and write the memory without a stream
	foreign atomic.Bool  // used on streams other than home since home last waited for them
	release func()       // for memory that is not ours: called when the last reference goes

	cleanup *cleanupState
}

type failure struct {
	epoch uint32
	err   error
}

type foreignUse struct {
	event Event
	write bool
}

// cleanupState is what a storage's cleanup needs when the storage itself is gone.
type cleanupState struct {
	home   Stream
	memory Memory
	acct   account
	live   atomic.Bool // holds memory that must be returned
	free   func()

	mu   sync.Mutex
	uses []foreignUse // on other streams than home, not known to be done
}

// NewStorage returns a storage of the given size on stream s, with one reference.
func NewStorage(s Stream, bytes int, cat Category) (*Storage, error) {
	m, err := s.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	st := m.header()
	st.memory, st.size, st.home, st.category, st.inference = m, bytes, s, cat, false
	st.refs.Store(1)
	st.version.Store(0)
	st.foreign.Store(len(st.cleanup.uses) > 0)
	st.track()
	return st, nil
}

// WrapStorage returns a storage over memory that belongs to somebody else; release is called when it is no longer used.
func WrapStorage(s Stream, m Memory, release func()) *Storage {
	st := m.header()
	st.memory, st.size, st.home, st.category, st.release, st.inference = m, m.Size, s, External, release, false
	st.refs.Store(1)
	st.version.Store(0)
	st.track()
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
	s := &Storage{cleanup: &cleanupState{}}
	runtime.AddCleanup(s, collected, s.cleanup)
	return s
}

// track accounts the storage's memory and arms its cleanup.
func (s *Storage) track() {
	c := s.cleanup
	c.home, c.memory, c.free = s.home, s.memory, s.release
	c.acct = account{counters: s.home.Counters(), category: s.category, bytes: accounted(s.size)}
	c.acct.add()
	c.live.Store(true)
}

// untrack undoes track and reports whether the memory is still to be returned.
func (c *cleanupState) untrack() bool {
	if !c.live.CompareAndSwap(true, false) {
		return false
	}
	c.acct.remove()
	return true
}

// collected returns the memory of a storage that nobody released.
func collected(c *cleanupState) {
	if c.untrack() {
		c.giveBack()
	}
}

func (c *cleanupState) giveBack() {
	c.mu.Lock()
	var after []Event
	kept := c.uses[:0]
	for _, u := range c.uses {
		if !u.event.Done() {
			after = append(after, u.event)
			kept = append(kept, u)
		}
	}
	c.uses = nil
	c.mu.Unlock()
	if c.free == nil {
		m := c.memory
		c.memory.storage = nil
		if len(kept) > 0 {
			// The home stream waits for them by itself. Another stream that is the first to use the memory in its next life
			// would not know: it only waits for what was launched at home.
			if m.storage == nil {
				m.storage = newHeader()
			}
			m.storage.cleanup.uses = kept
		}
		c.home.Free(m, after...)
		return
	}
	after = append(after, c.home.Record())
	free := c.free
	c.free = nil
	go func() {
		for _, e := range after {
			e.Wait()
		}
		free()
	}()
}

// Retain adds a reference.
func (s *Storage) Retain() { s.refs.Add(1) }

// Release drops a reference; the last one returns the memory.
func (s *Storage) Release() {
	switch n := s.refs.Add(-1); {
	case n > 0:
	case n < 0:
		panic("core: storage released more often than retained")
	default:
		s.epoch++ // a failure stays: calls on their way know the old epoch, and must not take the contents for sound
		s.foreign.Store(false)
		c, ours := s.cleanup, s.release == nil
		s.memory, s.home, s.release = Memory{}, nil, nil
		if c.untrack() {
			if ours {
				c.memory.storage = s
			}
			c.giveBack()
		}
	}
}

// Refs returns the number of references.
func (s *Storage) Refs() int { return int(s.refs.Load()) }

// Size returns the size in bytes.
func (s *Storage) Size() int { return s.size }

// Memory returns the memory behind the storage.
func (s *Storage) Memory() Memory { return s.memory }

// Stream returns the stream the memory came from.
func (s *Storage) Stream() Stream { return s.home }

// Device returns the device the memory is on.
func (s *Storage) Device() Device { return s.home.Device() }

// Version returns how often the contents were changed in place.
func (s *Storage) Version() uint32 { return s.version.Load() }

// BumpVersion records a change in place.
func (s *Storage) BumpVersion() { s.version.Add(1) }

// SetVersion sets the version, for code that changes contents in a way that saved values may ignore, such as refilling
// a gathered parameter with the same values.
func (s *Storage) SetVersion(v uint32) { s.version.Store(v) }

// SetCategory moves the storage's bytes to another category of the memory statistics.
func (s *Storage) SetCategory(cat Category) {
	if s.category == cat || s.category == External {
		return
	}
	s.category = cat
	c := s.cleanup
	if c.live.Load() {
		c.acct.remove()
		c.acct.category = cat
		c.acct.add()
	}
}

// Empty gives the memory back and leaves the storage without any. Using a tensor on it is an error until Refill.
func (s *Storage) Empty() {
	s.foreign.Store(false)
	if s.cleanup.untrack() {
		s.cleanup.giveBack()
	}
	s.memory = Memory{}
}

// IsEmpty reports whether the storage was emptied.
func (s *Storage) IsEmpty() bool { return !s.cleanup.live.Load() }

// Refill allocates the memory of an emptied storage again, with undefined contents.
func (s *Storage) Refill() error {
	if !s.IsEmpty() {
		return nil
	}
	m, err := s.home.Alloc(s.size)
	if err != nil {
		return err
	}
	if h := m.storage; h != nil {
		s.cleanup.uses, h.cleanup.uses, m.storage = h.cleanup.uses, nil, nil
		s.foreign.Store(len(s.cleanup.uses) > 0)
	}
	s.memory = m
	s.epoch++
	s.track()
	return nil
}

// use records that the storage is used on stream by, whose next call must wait for the events appended to waits. It is
// only called when the storage belongs to another stream or has been used on one.
func (s *Storage) use(by Stream, write bool, waits []Event) []Event {
	c := s.cleanup
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.uses[:0]
	for _, u := range c.uses {
		if u.event.Done() {
			continue
		}
		if u.event.Stream() != by && (write || u.write) {
			waits = append(waits, u.event)
			if by == s.home {
				continue // home is ordered after it from now on
			}
		}
		kept = append(kept, u)
	}
	c.uses = kept
	if by != s.home {
		waits = append(waits, s.home.Record())
		c.uses = append(c.uses, foreignUse{event: by.Next(), write: write})
	}
	s.foreign.Store(len(c.uses) > 0)
	return waits
}

func (s *Storage) fail(epoch uint32, err error) {
	s.failure.Store(&failure{epoch, err})
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
