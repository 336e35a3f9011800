package gpu

import (
	"math/bits"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/native"
)

const (
	// smallUpload is the size up to which data travels with the parameters of a batch.
	smallUpload = 16 << 10
	leastStage  = 64 << 10
	mostStage   = 16 << 20
)

// A stage is a buffer that the host can map. Only one use of it is under way at a time.
type stage struct {
	buffer *native.Buffer
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
	k := stageKind{u.buffer.Size, u.write}
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
	d.owner.do(func() {
		usage := native.MapRead | native.CopyTarget
		if write {
			usage = native.MapWrite | native.CopySource
		}
		if u.buffer, err = d.owner.gpu.NewBuffer(usage, k.size, write); err == nil && write {
			u.memory = u.buffer.Mapped()
		}
	})
	if err != nil {
		return nil, core.Errorf(core.MemoryError, "gpu", "no memory for %d bytes between the host and %v: %v", k.size, d, err)
	}
	return u, nil
}

// remap makes a stage for uploads usable again once the GPU has read it. It runs on the owner.
func (t *staging) remap(d *Device, u *stage) {
	u.memory = nil
	s := native.NewStatus()
	u.buffer.Map(true, s)
	d.owner.after(s, func(failed bool) {
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

// release gives the stage back. The owner calls it, or nobody uses the driver.
func (r *readback) release(d *Device) {
	if r.bytes == nil {
		r.stage.buffer.Release()
		return
	}
	r.stage.buffer.Unmap()
	d.staging.put(r.stage)
}

// A transfer is a call that moves bytes between the host and the device.
type transfer struct {
	memory core.Memory
	offset int
	size   int
	data   []byte // what to write, for small uploads
	stage  *stage // what to write, for large ones
	lead   int    // where in the stage the data starts
	read   *readback
}

// Upload implements [core.Stream].
func (s *stream) Upload(m core.Memory, offset int, src []byte) {
	d := s.device
	d.uploads.Add(1)
	d.uploaded.Add(int64(len(src)))
	for len(src) > 0 {
		n := min(len(src), mostStage-4)
		t := &transfer{memory: m, offset: offset, size: n}
		if n <= smallUpload {
			t.data = append([]byte(nil), src[:n]...)
		} else {
			u, err := d.staging.get(d, n+4, true)
			if err != nil {
				s.fail(err)
				return
			}
			// The piece between the first and the last whole word of the target starts at a word of the stage too.
			t.stage, t.lead = u, (offset & 3)
			copy(u.memory[t.lead:], src[:n])
			if head := -offset & 3; head > 0 {
				t.data = append([]byte(nil), src[:head]...)
			}
			t.data = append(t.data, src[n-(offset+n)&3:n]...)
		}
		s.transfer("upload", t)
		src, offset = src[n:], offset+n
	}
}

// Download implements [core.Stream].
func (s *stream) Download(dst []byte, m core.Memory, offset int) {
	d := s.device
	d.downloads.Add(1)
	d.downloaded.Add(int64(len(dst)))
	// Several pieces are on their way while the first is copied out.
	var queue []*transfer
	finish := func() {
		t := queue[0]
		queue = queue[1:]
		<-t.read.ready
		if t.read.bytes != nil {
			copy(dst[:t.size], t.read.bytes[t.lead:])
		}
		dst = dst[t.size:]
		d.owner.post(func() { t.read.release(d) })
	}
	for rest := len(dst); rest > 0; {
		n := min(rest, mostStage-4)
		lead := offset & 3
		r, err := newReadback(d, (lead+n+3)&^3)
		if err != nil {
			s.fail(err)
			break
		}
		t := &transfer{memory: m, offset: offset, size: n, lead: lead, read: r}
		s.demand(s.transfer("download", t))
		queue = append(queue, t)
		rest -= n
		offset += n
		if len(queue) == 3 {
			finish()
		}
	}
	for len(queue) > 0 {
		finish()
	}
}

// transfer launches a transfer and returns its number.
func (s *stream) transfer(name string, t *transfer) uint64 {
	c := s.Begin(-1, name)
	n := s.tail.Load() + 1
	s.slots[(n-1)%queueSize].transfer = t
	s.Launch(c)
	return n
}

// move records a transfer.
func (r *recorder) move(t *transfer) error {
	slab, at := r.device.memory.slabOf(t.memory)
	at += t.offset
	if t.read != nil {
		r.batch.list.Copy(t.read.stage.buffer, 0, slab.buffer, at-t.lead, (t.lead+t.size+3)&^3)
		r.batch.reads = append(r.batch.reads, t.read)
		return nil
	}
	first, last := (at+3)&^3, (at+t.size)&^3 // the whole words
	if t.stage != nil {
		r.batch.list.Copy(slab.buffer, first, t.stage.buffer, (t.lead+3)&^3, last-first)
		r.batch.uploads = append(r.batch.uploads, t.stage)
		head := first - at
		if err := r.patch(t.memory, at, t.data[:head]); err != nil {
			return err
		}
		return r.patch(t.memory, last, t.data[head:])
	}
	if last <= first {
		return r.patch(t.memory, at, t.data)
	}
	from := r.batch.put(4, t.data[first-at:last-at])
	r.batch.list.Copy(slab.buffer, first, r.device.params, from, last-first)
	if err := r.patch(t.memory, at, t.data[:first-at]); err != nil {
		return err
	}
	return r.patch(t.memory, last, t.data[last-at:])
}

const patchSource = `
@group(0) @binding(0) var<uniform> p: array<vec4<u32>, 32>;
@group(0) @binding(1) var<storage, read_write> b: array<u32>;
@compute @workgroup_size(1) fn main() {
  b[p[0].x] = (b[p[0].x] & ~p[0].y) | p[0].z;
}
`

// patch writes a few bytes at a place that is not a whole word of the slab.
func (r *recorder) patch(m core.Memory, at int, data []byte) error {
	for len(data) > 0 {
		n := min(4-at&3, len(data))
		var mask, value uint32
		for i, v := range data[:n] {
			shift := uint(at&3+i) * 8
			mask |= 0xff << shift
			value |= uint32(v) << shift
		}
		p, err := r.program(programKey{name: "patch"}, 1, func() string { return patchSource })
		if err != nil {
			return err
		}
		if err := r.dispatch(p, 1, []uint32{uint32(at / 4), mask, value}, m); err != nil {
			return err
		}
		data, at = data[n:], at+n
	}
	return nil
}
