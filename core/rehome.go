package core

import "unsafe"

// Rehome moves the contents of a storage on a CPU device into other memory of at least its size, with all tensors on it. Calls launched
// before use the old memory, which goes back once they are done; calls launched after it use m. backing is what [Storage.Backing] returns
// from then on, and release is called when m is no longer used. Calls on the storage are done when they are launched, as after
// [Storage.Share]: code outside the engine sees m.
//
// No other thread may be adding the storage to a call. Memory that was lent ([Storage.Lend]) stays as long as the storage, with what was
// in it at the time.
func (s *Storage) Rehome(m Memory, backing any, release func()) error {
	const op = "share_memory_"
	refuseRecording("the step moves a tensor to other memory")
	h := s.alloc
	switch {
	case s.IsEmpty():
		return Errorf(StateError, op, "got a storage that was emptied")
	case !h.home.Device().HostAccessible() || m.Size < h.size:
		return Errorf(ValueError, op, "want %d bytes that the host can address, got %d on %s", h.size, m.Size, h.home.Device())
	}
	if err := s.Err(); err != nil {
		return err
	}
	c := h.home.Begin(-1, op)
	h.mu.Lock()
	for _, u := range h.uses {
		c.AddWaits(u.event)
	}
	old := &allocation{home: h.home, memory: h.memory, size: h.size, category: h.category, free: h.free, uses: h.uses}
	h.uses = nil
	h.mu.Unlock()
	from, to, before := old.memory, m, s.epoch
	c.HostOnly = true
	c.Fn = func() error {
		if err := s.failedAt(before); err != nil { // of a call that was launched before
			s.fail(before+1, err, false)
			return nil
		}
		from.Touch(false)
		to.Touch(true)
		copy(unsafe.Slice((*byte)(to.Ptr), old.size), unsafe.Slice((*byte)(from.Ptr), old.size))
		return nil
	}
	h.home.Launch(c)
	old.live.set(true)
	lent := s.lent.Load() > 0
	h.memory, h.category, h.backing = m, External, backing
	s.epoch++ // recordings know the old memory
	h.free = release
	if lent {
		h.free = func() {
			release()
			collected(old)
		}
	}
	s.setForeign(false)
	s.shared.Add(1)
	if !lent {
		collected(old)
	}
	return nil
}

// Backing returns what [Storage.Rehome] or [Storage.SetBacking] was given about the memory, or nil.
func (s *Storage) Backing() any { return s.alloc.backing }

// SetBacking sets what [Storage.Backing] returns, for a storage that no other thread knows yet.
func (s *Storage) SetBacking(backing any) { s.alloc.backing = backing }

// RetainLive adds a reference, unless the last one is gone. It reports whether it did.
func (s *Storage) RetainLive() bool { return s.refs.incUnlessZero() }

// Lend is [Storage.Share] for a user that keeps the address of the memory.
func (s *Storage) Lend(n int32) {
	s.Share(n)
	s.lent.Add(n)
}
