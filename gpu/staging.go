package gpu

import (
	"math/bits"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

const (
	// smallUpload is the size up to which data travels with the parameters of a batch.
	smallUpload = 16 << 10
	leastStage  = 64 << 10
	mostStage   = 16 << 20 // of what is cut into pieces
)

// A stage is a buffer that the host can map. Only one use of it is under way at a time.
type stage struct {
	buffer driver.Buffer
	memory []byte // of one for uploads, while it is mapped
	write  bool
}

// staging keeps stages that nobody uses; those for uploads stay mapped.
type staging struct {
	mu   sync.Mutex
	free map[stageKind][]*stage
}

type stageKind struct {
	size  int
	write bool
}

func (t *staging) put(u *stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == nil {
		t.free = map[stageKind][]*stage{}
	}
	k := stageKind{u.buffer.Size(), u.write}
	t.free[k] = append(t.free[k], u)
}

// get returns a stage of at least the given size.
func (t *staging) get(d *Device, size int, write bool) (*stage, error) {
	k := stageKind{max(1<<bits.Len(uint(size-1)), leastStage), write}
	t.mu.Lock()
	if list := t.free[k]; len(list) > 0 {
		u := list[len(list)-1]
		t.free[k] = list[:len(list)-1]
		t.mu.Unlock()
		return u, nil
	}
	t.mu.Unlock()
	u := &stage{write: write}
	var err error
	d.thread.do(func() {
		usage := driver.MapRead | driver.CopyTarget
		if write {
			usage = driver.MapWrite | driver.CopySource
		} else if d.limits.BothWays {
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

// empty gives the stages that nobody uses back to the driver.
func (t *staging) empty(d *Device) {
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

// remap makes a stage for uploads usable again once the GPU has read it. It runs on the driver thread.
func (t *staging) remap(d *Device, u *stage) {
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

// A readback is a copy from the device that is on its way to a stage.
type readback struct {
	stage *stage
	bytes []byte // of the stage; nil if the copy failed
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

// release gives the stage back. Called on the driver thread, or when nobody uses the driver.
func (r *readback) release(d *Device) {
	if r.bytes == nil {
		r.stage.buffer.Release()
		return
	}
	r.stage.buffer.Unmap()
	d.staging.put(r.stage)
}
