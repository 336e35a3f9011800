package gpu

import (
	"math/bits"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

const (
	// smallUpload is the size up to which data is sent with the parameters of a batch.
	smallUpload    = 16 << 10
	minStagingSize = 64 << 10
	maxStagingSize = 16 << 20 // transfers that are longer are split
)

// A stagingBuffer is a buffer that the host can map. It is used for one transfer at a time.
type stagingBuffer struct {
	buffer driver.Buffer
	memory []byte // the mapped memory of a buffer for uploads
	write  bool
}

// stagingPool holds the unused staging buffers. Those for uploads stay mapped.
type stagingPool struct {
	mu   sync.Mutex
	free map[stagingKind][]*stagingBuffer
}

type stagingKind struct {
	size  int
	write bool
}

func (t *stagingPool) put(u *stagingBuffer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == nil {
		t.free = map[stagingKind][]*stagingBuffer{}
	}
	k := stagingKind{u.buffer.Size(), u.write}
	t.free[k] = append(t.free[k], u)
}

// get returns a staging buffer of at least the given size.
func (t *stagingPool) get(d *Device, size int, write bool) (*stagingBuffer, error) {
	k := stagingKind{max(1<<bits.Len(uint(size-1)), minStagingSize), write}
	t.mu.Lock()
	if list := t.free[k]; len(list) > 0 {
		u := list[len(list)-1]
		t.free[k] = list[:len(list)-1]
		t.mu.Unlock()
		return u, nil
	}
	t.mu.Unlock()
	u := &stagingBuffer{write: write}
	var err error
	d.thread.do(func() {
		usage := driver.MapRead | driver.CopyTarget
		if write {
			usage = driver.MapWrite | driver.CopySource
		} else if d.limits.MappablePrimary {
			usage |= driver.MapWrite | driver.CopySource
		}
		if u.buffer, err = d.thread.gpu.NewBuffer(usage, k.size, write); err == nil && write {
			u.memory = u.buffer.Mapped()
		}
	})
	if err != nil {
		return nil, core.Errorf(core.MemoryError, "gpu", "no memory for %d bytes between the host and %v: %v", k.size, d, err)
	}
	return u, nil
}

// empty releases all unused buffers.
func (t *stagingPool) empty(d *Device) {
	t.mu.Lock()
	free := t.free
	t.free = nil
	t.mu.Unlock()
	for _, list := range free {
		for _, u := range list {
			d.thread.do(func() {
				if u.write {
					u.buffer.Unmap()
				}
				u.buffer.Release()
			})
		}
	}
}

// remap maps a buffer for uploads again once the GPU has read it, and returns it to the pool. It runs on the driver thread.
func (t *stagingPool) remap(d *Device, u *stagingBuffer) {
	u.memory = nil
	s := d.thread.gpu.NewStatus()
	u.buffer.Map(true, s)
	d.thread.after(s, func(failed bool) {
		if failed {
			u.buffer.Release()
			return
		}
		u.memory = u.buffer.Mapped()
		t.put(u)
	})
}

// A readback is a copy from the device to a staging buffer. ready is closed at its end.
type readback struct {
	stage *stagingBuffer
	bytes []byte // the mapped memory; nil if the copy failed
	ready chan struct{}
}

func newReadback(d *Device, size int) (*readback, error) {
	u, err := d.staging.get(d, size, false)
	if err != nil {
		return nil, err
	}
	return &readback{stage: u, ready: make(chan struct{})}, nil
}

func (r *readback) finish(bytes []byte) {
	r.bytes = bytes
	close(r.ready)
}

// release returns the staging buffer to the pool. It is called on the driver thread, or when nothing else uses the driver.
func (r *readback) release(d *Device) {
	if r.bytes == nil {
		r.stage.buffer.Release()
		return
	}
	r.stage.buffer.Unmap()
	d.staging.put(r.stage)
}
