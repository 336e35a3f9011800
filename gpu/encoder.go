package gpu

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/kernel/fusion"
	"github.com/plait-ml/plait/gpu/shader"
)

// An encoder writes the dispatches that kernels record into the batch of a stream's worker. It is the [shader.Runtime] of its recorder.
type encoder struct {
	shader.Recorder
	stream *stream
	device *Device
	batch  *batch
	fusion fusion.Fusion
	temps  []core.Memory // scratch memory of the call being recorded

	capture *capture // of commands that are kept; nil for those of batches

	feedThreshold int // see [stream.feed]
}

func newEncoder(s *stream) *encoder {
	r := &encoder{stream: s, device: s.device, batch: s.newBatch(), feedThreshold: s.device.limits.IdleBatch}
	r.Recorder.Runtime, r.Recorder.GPU = r, &s.device.target
	return r
}

// Lookup implements [Runtime].
func (r *encoder) Lookup(key shader.Key) (shader.Program, error) { return r.device.programs.get(key) }

// Compile implements [Runtime].
func (r *encoder) Compile(key shader.Key, source *shader.Source) (shader.Program, error) {
	return r.device.programs.add(key, source)
}

// Launch implements [Runtime].
func (r *encoder) Launch(p shader.Program, x, y, z int, params []uint32, mems []core.Memory) error {
	key := bindGroupKey{n: len(mems)}
	for i, m := range mems {
		key.slabs[i] = uint16(shader.Slab(m))
		if r.device.links.linked != nil {
			if err := r.foreign(allSlabs.get(shader.Slab(m))); err != nil {
				return err
			}
		}
	}
	g, err := r.device.programs.bindGroup(key)
	if err != nil {
		return err
	}
	at := r.batch.putWords(max(r.device.limits.UniformAlignment, 16), params)
	r.batch.list.Dispatch(p.(*program).pipeline, g, uint32(at), uint32(x), uint32(y), uint32(z))
	r.device.dispatches.Add(1)
	return nil
}

// Temp implements [Runtime].
func (r *encoder) Temp(bytes int) (core.Memory, error) {
	if core.AllocFault(r.stream, bytes) {
		return core.Memory{}, core.Errorf(core.MemoryError, "allocate", "no room for %d bytes of scratch on %v", bytes, r.device)
	}
	class := backend.SizeClass(bytes, granule)
	m, _, ok := r.scratch().Take(class)
	if !ok {
		var err error
		if m, err = r.device.memory.take(class); err != nil {
			if m, err = r.device.memory.takeAfterRelease(class); err != nil {
				return m, core.Errorf(core.MemoryError, "allocate", "no room for %d bytes of scratch on %v: %v", bytes, r.device, err)
			}
		}
	}
	r.temps = append(r.temps, m)
	return m, nil
}

// scratch returns the scratch memory that calls reuse.
func (r *encoder) scratch() *backend.Cache {
	if r.capture != nil {
		return r.capture.scratch
	}
	return &r.stream.scratch
}

// Temps implements [Runtime].
func (r *encoder) Temps() int { return len(r.temps) }

// Release implements [Runtime]. Later calls of the stream may reuse the memory.
func (r *encoder) Release(kept int) {
	for _, m := range r.temps[kept:] {
		r.scratch().Put(m, r.stream.recorded.Load()+1, nil)
	}
	r.temps = r.temps[:kept]
}

// Flush implements [Runtime].
func (r *encoder) Flush() {
	if r.capture == nil && r.batch.full(fullBatch) {
		r.stream.send(r)
	}
}

// Feed implements [Runtime].
func (r *encoder) Feed() {
	if r.capture == nil {
		r.stream.feed(r)
	}
}

// Finish implements [Runtime]. It may be called in the middle of a call.
func (r *encoder) Finish() bool {
	if r.capture != nil {
		r.capture.refuse()
		return false
	}
	r.stream.send(r)
	for r.stream.inFlight.Load() > 0 {
		r.stream.Sleep()
	}
	return r.device.lost.Get() == nil
}

// Clear implements [Runtime].
func (r *encoder) Clear(o *core.Operand) {
	slab, at := slabOf(o.Memory)
	size := o.DType.Size()
	r.batch.list.Clear(slab.buffer, at+size*o.Offset, (size*o.Numel()+3)&^3)
}

// Upload implements [Runtime]. The words travel in the parameters of batches.
func (r *encoder) Upload(m core.Memory, words []uint32) {
	slab, at := slabOf(m)
	for len(words) > 0 {
		n := min(len(words), paramsRoom/16)
		from := r.batch.putWords(4, words[:n])
		r.batch.list.Copy(slab.buffer, at, r.device.params, from, 4*n)
		words, at = words[n:], at+4*n
		r.Flush()
	}
}

// watch has the device remember what uses the results of the batch, since one of its calls may fail late.
func (r *encoder) watch() {
	if !r.batch.watching {
		r.batch.watching, r.batch.watched = true, r.device.trace.Watch()
	}
}

// Check implements [Runtime].
func (r *encoder) Check(c *core.Call, err func(c *core.Call, fault uint32) error) (m core.Memory, index uint32, failure error) {
	s := r.stream
	if r.capture != nil {
		return m, 0, r.capture.refuse()
	}
	if s.faults.Handle == 0 {
		if s.faults, failure = r.device.memory.take(4 * faultSlots); failure != nil {
			return m, 0, core.Errorf(core.MemoryError, c.Op, "no room for the words in which faults are told: %v", failure)
		}
		slab, at := slabOf(s.faults)
		r.batch.list.Clear(slab.buffer, at, 4*faultSlots)
	}
	slot := len(r.batch.checks)
	r.watch()
	kept := &core.Call{Op: c.Op, Outs: slices.Clone(c.Outs), Ins: slices.Clone(c.Ins), Ints: slices.Clone(c.Ints), InPlace: c.InPlace}
	r.batch.checks = append(r.batch.checks, check{r.device.trace.Suspect(kept), err})
	return s.faults, shader.Word(s.faults) + uint32(slot), nil
}
