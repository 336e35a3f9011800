package gpu

import (
	"runtime"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// A transfer is a call that copies bytes between the host and the device.
type transfer struct {
	regions []core.Region
	at      []int          // offset of each region in the staging buffer
	stage   *stagingBuffer // the source of an upload
	data    []byte         // or the source of a small upload, which has one region
	read    *readback      // the destination of a download

	cancelled error
}

// cancel makes the transfer end without data. Its buffers are freed as after any other.
func (t *transfer) cancel(err error) {
	t.cancelled = err
	if t.read == nil {
		t.regions = nil
	}
}

// layoutRegions returns the offsets of regions in a staging buffer, and its size. Each offset modulo 4 is that of the region on the device,
// so that whole words can be copied.
func layoutRegions(regions []core.Region) (at []int, size int) {
	const line = 64
	at = make([]int, len(regions))
	for i, s := range regions {
		at[i] = (size+line-1)&^(line-1) + s.Offset&3
		size = at[i] + s.Size
	}
	return at, max((size+3)&^3, 4)
}

func sizeOf(regions []core.Region) int {
	n := 0
	for _, s := range regions {
		n += s.Size
	}
	return n
}

// transfer enqueues a transfer and returns its call number. cancelled, which may be nil, is called if the transfer is cancelled.
func (s *stream) transfer(name string, t *transfer, cancelled func(err error), after []core.Event) uint64 {
	c := s.Begin(-1, name)
	c.AddWaits(after...)
	c.Own, c.OnCancel = t, cancelled
	return s.Enqueue(c)
}

// A download is a transfer to the host.
type download struct {
	transfer
	device *Device
}

// Fetch implements [core.Stager].
func (s *stream) Fetch(regions []core.Region, cancelled func(err error), after ...core.Event) (core.Fetched, error) {
	s.device.downloads.Add(1)
	s.device.downloaded.Add(int64(sizeOf(regions)))
	s.device.pacing.beginTurns()
	s.forCollectives.Store(true)
	return s.fetch(regions, cancelled, after)
}

// ExpectWait implements [core.Stager].
func (s *stream) ExpectWait() { s.device.pacing.shortenTurns() }

func (s *stream) fetch(regions []core.Region, cancelled func(err error), after []core.Event) (*download, error) {
	f := &download{transfer{regions: regions}, s.device}
	var size int
	var err error
	f.at, size = layoutRegions(regions)
	if f.read, err = newReadback(s.device, size); err != nil {
		return nil, err
	}
	s.request(s.transfer("download", &f.transfer, cancelled, after))
	return f, nil
}

// Wait implements [core.Fetched].
func (f *download) Wait() error {
	<-f.read.ready
	switch lost := f.device.lost.Get(); {
	case f.cancelled != nil:
		return f.cancelled
	case f.read.bytes != nil:
		return nil
	case lost != nil:
		return lost
	}
	return core.Errorf(core.DeviceError, "gpu", "a copy from %v to the host failed", f.device)
}

// Bytes implements [core.Fetched].
func (f *download) Bytes(i int) []byte {
	at, n := f.at[i], f.regions[i].Size
	return f.read.bytes[at : at+n : at+n]
}

// Back implements [core.Fetched].
func (f *download) Back(on core.Stager) core.Stage {
	s := on.(*stream)
	if !s.device.limits.MappablePrimary {
		return nil
	}
	s.countUpload(f.regions)
	f.read.stage.memory = f.read.bytes
	return &upload{transfer{regions: f.regions, at: f.at, stage: f.read.stage}, s}
}

// Release implements [core.Fetched].
func (f *download) Release() { f.device.thread.post(func() { f.read.release(f.device) }) }

// An upload is a transfer to the device.
type upload struct {
	transfer
	stream *stream
}

// Stage implements [core.Stager].
func (s *stream) Stage(regions []core.Region) (core.Stage, error) {
	s.countUpload(regions)
	return s.newUpload(regions)
}

// countUpload counts an upload of a collective.
func (s *stream) countUpload(regions []core.Region) {
	s.device.uploads.Add(1)
	s.device.uploaded.Add(int64(sizeOf(regions)))
	s.device.pacing.beginTurns()
	s.forCollectives.Store(true)
}

func (s *stream) newUpload(regions []core.Region) (*upload, error) {
	g := &upload{transfer{regions: regions}, s}
	var size int
	var err error
	g.at, size = layoutRegions(regions)
	g.stage, err = s.device.staging.get(s.device, size, true)
	return g, err
}

// Bytes implements [core.Stage].
func (g *upload) Bytes(i int) []byte {
	at, n := g.at[i], g.regions[i].Size
	return g.stage.memory[at : at+n : at+n]
}

// Store implements [core.Stage].
func (g *upload) Store(cancelled func(err error), after ...core.Event) core.Event {
	n := g.stream.transfer("upload", &g.transfer, cancelled, after)
	g.stream.request(n)
	return g.stream.Event(n)
}

// Release implements [core.Stage].
func (g *upload) Release() {
	d := g.stream.device
	if g.stage.write {
		d.staging.put(g.stage)
		return
	}
	d.thread.post(func() {
		g.stage.buffer.Unmap()
		g.stage.memory = nil
		d.staging.put(g.stage)
	})
}

// parallelCopy copies with several goroutines: a single thread reaches a fraction of the bandwidth of memory and bus.
func parallelCopy(dst, src []byte) {
	const least = 1 << 20
	parts := min(runtime.GOMAXPROCS(0), len(src)/least, 8)
	if parts < 2 {
		copy(dst, src)
		return
	}
	var wait sync.WaitGroup
	each := shader.Ceil(len(src), parts)
	for at := 0; at < len(src); at += each {
		end := min(at+each, len(src))
		wait.Go(func() { copy(dst[at:end], src[at:end]) })
	}
	wait.Wait()
}

// Upload implements [core.Stream].
func (s *stream) Upload(m core.Memory, offset int, src []byte) {
	d := s.device
	d.uploads.Add(1)
	d.uploaded.Add(int64(len(src)))
	for len(src) > 0 {
		n := min(len(src), maxStagingSize-4)
		regions := []core.Region{{Memory: m, Offset: offset, Size: n}}
		if n <= smallUpload {
			s.transfer("upload", &transfer{regions: regions, data: append([]byte(nil), src[:n]...)}, nil, nil)
		} else {
			g, err := s.newUpload(regions)
			if err != nil {
				s.Errors.Set(err)
				return
			}
			parallelCopy(g.Bytes(0), src[:n])
			s.transfer("upload", &g.transfer, nil, nil)
		}
		src, offset = src[n:], offset+n
	}
}

// Download implements [core.Stream].
func (s *stream) Download(dst []byte, m core.Memory, offset int) {
	d := s.device
	d.downloads.Add(1)
	d.downloaded.Add(int64(len(dst)))
	// Up to three pieces are in flight while the first is copied out.
	var queue []*download
	finish := func() {
		f := queue[0]
		queue = queue[1:]
		if f.Wait() == nil {
			parallelCopy(dst[:f.regions[0].Size], f.Bytes(0))
		}
		dst = dst[f.regions[0].Size:]
		f.Release()
	}
	for rest := len(dst); rest > 0; {
		n := min(rest, maxStagingSize-4)
		f, err := s.fetch([]core.Region{{Memory: m, Offset: offset, Size: n}}, nil, nil)
		if err != nil {
			s.Errors.Set(err)
			break
		}
		queue = append(queue, f)
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

// recordTransfer records the commands of a transfer.
func (r *encoder) recordTransfer(t *transfer) error {
	if t.read != nil {
		r.batch.reads = append(r.batch.reads, t.read)
	}
	if t.stage != nil {
		r.batch.uploads = append(r.batch.uploads, t.stage)
	}
	for i, region := range t.regions {
		if region.Size == 0 {
			continue
		}
		slab, from := slabOf(region.Memory)
		from += region.Offset
		if t.read != nil {
			lead := from & 3
			r.batch.list.Copy(t.read.stage.buffer, t.at[i]-lead, slab.buffer, from-lead, (lead+region.Size+3)&^3)
			continue
		}
		if err := r.recordUpload(t, i, slab, from); err != nil {
			return err
		}
	}
	return nil
}

// recordUpload records the upload of region i to an offset of a slab. Whole words are copied; the bytes before and after them are patched.
func (r *encoder) recordUpload(t *transfer, i int, slab *slab, to int) error {
	region := t.regions[i]
	data := t.data
	if t.stage != nil {
		data = t.stage.memory[t.at[i] : t.at[i]+region.Size]
	}
	first, last := (to+3)&^3, (to+region.Size)&^3
	if last <= first {
		return r.patch(region.Memory, to, data)
	}
	if t.stage != nil {
		r.batch.list.Copy(slab.buffer, first, t.stage.buffer, t.at[i]+first-to, last-first)
	} else {
		from := r.batch.put(4, data[first-to:last-to])
		r.batch.list.Copy(slab.buffer, first, r.device.params, from, last-first)
	}
	if err := r.patch(region.Memory, to, data[:first-to]); err != nil {
		return err
	}
	return r.patch(region.Memory, last, data[last-to:])
}

// patchText writes a program that replaces the bits of a word under a mask. Its parameters are the index of the word, the mask and the
// bits.
func patchText(w *shader.Text) {
	w.Words(1, "b")
	w.Main(1)
	w.Add("  let at = %s;\n  b[at] = (b[at] & ~%s) | %s;", shader.Param(0), shader.Param(1), shader.Param(2))
}

// patch writes bytes that do not fill whole words of the slab.
func (r *encoder) patch(m core.Memory, at int, data []byte) error {
	for len(data) > 0 {
		n := min(4-at&3, len(data))
		var mask, value uint32
		for i, v := range data[:n] {
			shift := uint(at&3+i) * 8
			mask |= 0xff << shift
			value |= uint32(v) << shift
		}
		p, err := r.Program(shader.Key{Name: "patch"}, 1, patchText)
		if err != nil {
			return err
		}
		if err := r.Dispatch(p, 1, []uint32{uint32(at / 4), mask, value}, m); err != nil {
			return err
		}
		data, at = data[n:], at+n
	}
	return nil
}
