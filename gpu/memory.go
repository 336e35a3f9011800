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
	granule      = 256       // pieces start and end at multiples of it
	softwareSlab = 64 << 20  // slab size of adapters that compute on the CPU
	hardwareSlab = 256 << 20 // slab size of GPUs
	// reach is how many bytes of a slab programs can index whatever the dtype: they count elements with 32 bits. A piece that ends behind it
	// begins its slab, so that the offset takes nothing of what they can count.
	reach = 1 << 32
)

// A slab is a large buffer that is divided into pieces. Few large buffers keep the driver's bookkeeping small, and kernels whose operands
// are in the same slabs share a bind group.
type slab struct {
	number int // unique among the slabs of all GPUs, so that a handle says which GPU it is of
	device *Device
	buffer driver.Buffer
	size   int
	free   []span // sorted by offset, and merged where they touch
	// handle is what other processes open the slab by; nil if they do not. foreign says that the slab is another process's.
	handle  []byte
	foreign bool
}

// at returns a piece of the slab.
func (s *slab) at(offset, size int) core.Memory {
	return core.Memory{Handle: uint64(s.number)<<shader.HandleShift | uint64(offset), Size: size}
}

type span struct{ at, size int }

// memory is the allocator of a device: its slabs.
type memory struct {
	device   *Device
	slabSize int // ordinary size of a slab
	limit    int // bytes that all slabs may have together; 0 for no limit
	reserved atomic.Int64

	mu    sync.Mutex
	slabs []*slab
}

// slabTable lists the slabs of all GPUs by number; nil where a slab was released. No slab has number 0, so handle 0 is never valid.
type slabTable struct {
	mu   sync.RWMutex
	list []*slab
}

var allSlabs = slabTable{list: []*slab{nil}}

// maxSlabs is how many slabs there can be: bind groups hold their numbers in 16 bits.
const maxSlabs = 1 << 16

// add gives the slab a number.
func (t *slabTable) add(s *slab) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s.number = 1; s.number < len(t.list); s.number++ {
		if t.list[s.number] == nil {
			t.list[s.number] = s
			return nil
		}
	}
	if s.number == maxSlabs {
		return core.Errorf(core.MemoryError, "allocate", "the GPUs hold %d blocks of memory, which is the most", maxSlabs-1)
	}
	t.list = append(t.list, s)
	return nil
}

func (t *slabTable) remove(s *slab) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list[s.number] = nil
}

func (t *slabTable) get(number int) *slab {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.list[number]
}

// slabOf returns the slab of a piece of any GPU's memory, and the piece's offset in it.
func slabOf(x core.Memory) (*slab, int) {
	return allSlabs.get(shader.Slab(x)), int(x.Handle & shader.OffsetMask)
}

func (m *memory) open(d *Device) {
	m.device = d
	m.slabSize = hardwareSlab
	m.limit = environment().memory
	if d.adapter.Software {
		m.slabSize = softwareSlab
		if m.limit == 0 {
			m.limit = cpu.MemoryLimit() / 2
		}
	}
	m.slabSize = min(m.slabSize, d.limits.Binding)
}

// take returns a piece of the given size, a multiple of the granule, from the smallest free span that fits. The error is the driver's.
func (m *memory) take(size int) (core.Memory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var best *slab
	at := -1
	for _, s := range m.slabs {
		for i, f := range s.free {
			if f.size >= size && (f.at == 0 || f.at+size <= reach) && (best == nil || f.size < best.free[at].size) {
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
	x := best.at(f.at, size)
	f.at += size
	f.size -= size
	if f.size == 0 {
		best.free = slices.Delete(best.free, at, at+1)
	}
	return x, nil
}

// grow allocates a slab with room for size bytes: one of the ordinary size, or for a large piece one of exactly its size.
func (m *memory) grow(size int) (*slab, error) {
	bytes := m.slabSize
	if size > m.slabSize/4 {
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
	s := &slab{device: m.device, buffer: b, size: bytes, free: []span{{0, bytes}}}
	if err = allSlabs.add(s); err != nil {
		m.device.thread.do(b.Release)
		return nil, err
	}
	m.reserved.Add(int64(bytes))
	m.slabs = append(m.slabs, s)
	return s, nil
}

// Release implements [backend.Allocator]. It returns the piece to its slab.
func (m *memory) Release(x core.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, at := slabOf(x)
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

// trim releases slabs that hold no piece, except those that other processes may have opened.
func (m *memory) trim() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slabs = slices.DeleteFunc(m.slabs, func(s *slab) bool {
		if len(s.free) != 1 || s.free[0].size != s.size || s.handle != nil {
			return false
		}
		m.reserved.Add(-int64(s.size))
		for _, d := range openDevices() { // a GPU that reaches this one may have bound the slab
			d.programs.releaseGroups(s.number)
		}
		m.device.thread.do(s.buffer.Release)
		allSlabs.remove(s)
		return true
	})
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
	if x, err = m.takeAfterRelease(class); err == nil {
		return x, nil
	}
	return core.Memory{}, core.Errorf(core.MemoryError, "allocate",
		"out of memory: no room for %d bytes on %v (%s); %d bytes of its tensors are in use, %d are held from the driver (PLAIT_GPU_MEMORY limits them): %v",
		bytes, d, d.Name(), core.MemoryUsage(d).Current, d.Reserved(), err)
}

// takeAfterRelease is take after releasing all memory that the device only caches.
func (m *memory) takeAfterRelease(size int) (core.Memory, error) {
	m.device.EmptyCache()
	return m.take(size)
}
