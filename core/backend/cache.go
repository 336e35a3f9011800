package backend

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
)

// An Allocator provides the memory of a device. It stands behind the caches of the device's streams.
type Allocator interface {
	// Allocate returns memory of the size class for a request of bytes by rank. If there is none it tries to free memory: see [Settle].
	Allocate(rank, class, bytes int) (core.Memory, error)
	// Release takes back memory that nothing uses.
	Release(m core.Memory)
}

// A Cache holds a stream's free memory blocks by size class, for later calls of the stream. The block freed last is reused first.
type Cache struct {
	memory Allocator
	mu     sync.Mutex
	free   [][]block // by class index
	closed bool
}

// A block is a free piece of memory.
type block struct {
	memory core.Memory
	freed  uint64       // stream position of its Free
	after  []core.Event // of other streams that may still use it
}

// Open sets the allocator behind the cache.
func (c *Cache) Open(memory Allocator) { c.memory = memory }

// Take returns a block of the size class. Its next user must wait for the events.
func (c *Cache) Take(class int) (m core.Memory, after []core.Event, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index := ClassIndex(class)
	if index >= len(c.free) || len(c.free[index]) == 0 {
		return core.Memory{}, nil, false
	}
	list := &c.free[index]
	last := len(*list) - 1
	b := &(*list)[last]
	m, after = b.memory, b.after
	*b = block{}
	*list = (*list)[:last]
	return m, after, true
}

// Put returns a block. Calls up to number freed may still use it, and other streams until the events after. It does not wait for them.
func (c *Cache) Put(m core.Memory, freed uint64, after []core.Event) {
	c.mu.Lock()
	if !c.closed {
		index := ClassIndex(m.Size)
		for index >= len(c.free) {
			c.free = append(c.free, nil)
		}
		c.free[index] = append(c.free[index], block{m, freed, after})
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	if undone(after) {
		// The caller may hold a lock that they need to end: Python's, when it frees a tensor that a collective still uses.
		go c.release(m, after)
		return
	}
	c.release(m, after)
}

// release gives memory back to the allocator after the events.
func (c *Cache) release(m core.Memory, after []core.Event) {
	for _, e := range after {
		e.Wait()
	}
	c.memory.Release(m)
}

// Close returns every block to the allocator once nothing uses it, including blocks put later. The stream's calls are done.
func (c *Cache) Close() {
	c.mu.Lock()
	free := c.free
	c.closed, c.free = true, nil
	c.mu.Unlock()
	for _, list := range free {
		for _, b := range list {
			c.release(b.memory, b.after)
		}
	}
}

// Empty returns to the allocator all blocks that nothing uses once the stream's calls up to number done have ended.
func (c *Cache) Empty(done uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, list := range c.free {
		kept := list[:0]
		for _, b := range list {
			if b.freed > done || undone(b.after) {
				kept = append(kept, b)
				continue
			}
			c.memory.Release(b.memory)
		}
		clear(list[len(kept):])
		c.free[i] = kept
	}
}

// undone reports whether an event is not done.
func undone(events []core.Event) bool {
	return slices.ContainsFunc(events, func(e core.Event) bool { return !e.Done() })
}
