package backend

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
)

// An Allocator is the memory of a device, behind the caches of its streams.
type Allocator interface {
	// Allocate returns memory of the class to a rank that asked for so many bytes. If there is none it makes room: see [Settle].
	Allocate(rank, class, bytes int) (core.Memory, error)
	// Release takes memory back that nothing uses.
	Release(m core.Memory)
}

// A Cache holds free pieces of memory by size class, for calls that come after those that used them. The piece freed last is
// handed out first.
type Cache struct {
	memory Allocator
	mu     sync.Mutex
	free   [][]block // by class index
	closed bool
}

// A block is a free piece of memory.
type block struct {
	memory core.Memory
	freed  uint64       // the stream's position when it was freed
	after  []core.Event // of other streams that may still use it
}

// Open makes the cache one of the allocator's pieces.
func (c *Cache) Open(memory Allocator) { c.memory = memory }

// Take returns a piece of the class. What uses it waits for the events.
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

// Put takes a piece back that calls up to number freed may use, and other streams until the events after.
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
	c.release(m, after)
}

func (c *Cache) release(m core.Memory, after []core.Event) {
	for _, e := range after {
		e.Wait()
	}
	c.memory.Release(m)
}

// Close gives every piece to the allocator once nothing uses it, now and for pieces still to come. The stream's calls are done.
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

// Empty gives the pieces to the allocator that nothing uses when the stream's calls up to number done are.
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

// undone reports whether one of the events is still to come.
func undone(events []core.Event) bool {
	return slices.ContainsFunc(events, func(e core.Event) bool { return !e.Done() })
}
