package gpu

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	granule      = 256       // what pieces start and end at
	softwareSlab = 64 << 20  // slabs of adapters that compute on the CPU
	hardwareSlab = 256 << 20 // slabs of GPUs
)

// A slab is a buffer that is divided into pieces. Few large buffers keep the driver's bookkeeping small and let kernels
// that use them share their bind groups.
type slab struct {
	number int
	buffer driver.Buffer
	size   int
	free   []span // by offset, no two touch
}

type span struct{ at, size int }

// memory is a device's slabs.
type memory struct {
	device   *Device
	unit     int // size of an ordinary slab
	limit    int // bytes that may be held; 0 for what the driver gives
	reserved atomic.Int64

	mu    sync.Mutex
	slabs []*slab // by number; nil for those given back
}

func (m *memory) open(d *Device) {
	m.device = d
	m.unit = hardwareSlab
	m.limit = environment().memory
	if d.adapter.Software {
		m.unit = softwareSlab
		if m.limit == 0 {
			m.limit = cpu.MemoryLimit() / 2
		}
	}
	m.unit = min(m.unit, d.limits.Binding)
	m.slabs = []*slab{nil} // handle 0 names nothing
}

// slabOf returns the slab that a piece is from, and where it begins.
func (m *memory) slabOf(x core.Memory) (*slab, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slabs[x.Handle>>shader.HandleShift], int(x.Handle & shader.OffsetMask)
}

// take returns a piece of the given size, a multiple of the granule, or the driver's reason why there is none.
func (m *memory) take(size int) (core.Memory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var best *slab
	at := -1
	for _, s := range m.slabs {
		if s == nil {
			continue
		}
		for i, f := range s.free {
			if f.size >= size && (best == nil || f.size < best.free[at].size) {
				best, at = s, i
			}
		}
	}
	if best == nil {
		var err error
		if best, err = m.grow(size); err != nil {
			return core.Memory{}, err
		}
		at = 0
	}
	f := &best.free[at]
	x := core.Memory{Handle: uint64(best.number)<<shader.HandleShift | uint64(f.at), Size: size}
	f.at += size
	f.size -= size
	if f.size == 0 {
		best.free = slices.Delete(best.free, at, at+1)
	}
	return x, nil
}

// grow makes a slab that holds size bytes: an ordinary one, or one of its own for a large piece.
func (m *memory) grow(size int) (*slab, error) {
	bytes := m.unit
	if size > m.unit/4 {
		bytes = size
	}
	if m.limit > 0 && int(m.reserved.Load())+bytes > m.limit {
		return nil, core.Errorf(core.MemoryError, "allocate", "%d of %d bytes are held", m.reserved.Load(), m.limit)
	}
	var b driver.Buffer
	var err error
	m.device.thread.do(func() {
		b, err = m.device.thread.gpu.NewBuffer(driver.Storage|driver.CopySource|driver.CopyTarget, bytes, false)
	})
	if err != nil {
		return nil, err
	}
	m.reserved.Add(int64(bytes))
	s := &slab{number: len(m.slabs), buffer: b, size: bytes, free: []span{{0, bytes}}}
	for i := 1; i < len(m.slabs); i++ {
		if m.slabs[i] == nil {
			s.number = i
			m.slabs[i] = s
			return s, nil
		}
	}
	m.slabs = append(m.slabs, s)
	return s, nil
}

// Release implements [backend.Allocator]: the piece returns to its slab.
func (m *memory) Release(x core.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slabs[x.Handle>>shader.HandleShift]
	at := int(x.Handle & shader.OffsetMask)
	i, _ := slices.BinarySearchFunc(s.free, at, func(f span, at int) int { return f.at - at })
	s.free = slices.Insert(s.free, i, span{at, x.Size})
	if i+1 < len(s.free) && at+x.Size == s.free[i+1].at {
		s.free[i].size += s.free[i+1].size
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].at+s.free[i-1].size == at {
		s.free[i-1].size += s.free[i].size
		s.free = slices.Delete(s.free, i, i+1)
	}
}

// trim gives slabs that hold nothing back to the driver.
func (m *memory) trim() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.slabs {
		if s == nil || len(s.free) != 1 || s.free[0].size != s.size {
			continue
		}
		m.slabs[i] = nil
		m.reserved.Add(-int64(s.size))
		m.device.programs.forget(s.number)
		m.device.thread.do(s.buffer.Release)
	}
}

// Allocate implements [backend.Allocator].
func (m *memory) Allocate(rank, class, bytes int) (core.Memory, error) {
	d := m.device
	if class > d.limits.Binding {
		return core.Memory{}, core.Errorf(core.MemoryError, "allocate",
			"%d bytes are more than a program on %v (%s) can see of one tensor, %d", bytes, d, d.Name(), d.limits.Binding)
	}
	if err := d.lost.Get(); err != nil {
		return core.Memory{}, err
	}
	x, err := m.take(class)
	if err == nil {
		return x, nil
	}
	backend.Settle(rank, d.Streams())
	if x, err = m.scrape(class); err == nil {
		return x, nil
	}
	return core.Memory{}, core.Errorf(core.MemoryError, "allocate",
		"out of memory: no room for %d bytes on %v (%s); %d bytes of its tensors are in use, %d are held from the driver (PLAIT_GPU_MEMORY limits them): %v",
		bytes, d, d.Name(), core.MemoryUsage(d).Current, d.Reserved(), err)
}

// scrape is take after everything was given back that the device keeps for later.
func (m *memory) scrape(size int) (core.Memory, error) {
	m.device.EmptyCache()
	return m.take(size)
}
