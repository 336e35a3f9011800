package gpu

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// A recorder is what kernels put their dispatches on: the batch that a stream's worker fills.
type recorder struct {
	stream *stream
	device *Device
	batch  *batch
	fusion fusion
	temps  []core.Memory // of the call being recorded
	words  []uint32      // room for parameters

	patience int // commands; see [stream.feed]
}

// program returns the program of a key, of which source writes the text.
func (r *recorder) program(key programKey, buffers int, source func() string) (*program, error) {
	return r.device.programs.get(key, buffers, source)
}

// dispatch runs p over a number of workgroups, of which more than the driver takes in a row fold into rows. params are its
// parameters and mems its buffers, in the order of its bindings.
func (r *recorder) dispatch(p *program, groups int, params []uint32, mems ...core.Memory) error {
	x, y := groups, 1
	if most := r.device.limits.Workgroups; x > most {
		y = (groups + most - 1) / most
		x = (groups + y - 1) / y
	}
	return r.grid(p, x, y, 1, params, mems...)
}

// grid is dispatch for a grid with sides.
func (r *recorder) grid(p *program, x, y, z int, params []uint32, mems ...core.Memory) error {
	if x == 0 || y == 0 || z == 0 {
		return nil
	}
	if most := r.device.limits.Workgroups; max(x, y, z) > most {
		return core.Errorf(core.DeviceError, "gpu", "a grid of %d x %d x %d workgroups is past the limit of %d", x, y, z, most)
	}
	if 4*len(params) > paramsWindow {
		return core.Errorf(core.DeviceError, "gpu", "%d parameters are past the limit of %d", len(params), paramsWindow/4)
	}
	key := groupKey{n: len(mems)}
	for i, m := range mems {
		key.slabs[i] = uint16(m.Handle >> handleShift)
	}
	g, err := r.device.programs.group(key)
	if err != nil {
		return err
	}
	at := r.batch.putWords(max(r.device.limits.UniformAlignment, 16), params)
	r.batch.list.Dispatch(p.pipeline, g, uint32(at), uint32(x), uint32(y), uint32(z))
	r.device.dispatches.Add(1)
	return nil
}

// temp returns memory that is the call's alone.
func (r *recorder) temp(bytes int) (core.Memory, error) {
	if core.AllocFault(r.stream, bytes) {
		return core.Memory{}, core.Errorf(core.MemoryError, "allocate", "no room for %d bytes of scratch on %v", bytes, r.device)
	}
	class := sizeClass(bytes)
	if b, ok := r.stream.scratch.take(class); ok {
		r.temps = append(r.temps, b.memory)
		return b.memory, nil
	}
	m, err := r.device.memory.take(class)
	if err != nil {
		r.device.EmptyCache()
		if m, err = r.device.memory.take(class); err != nil {
			return m, core.Errorf(core.MemoryError, "allocate", "no room for %d bytes of scratch on %v: %v", bytes, r.device, err)
		}
	}
	r.temps = append(r.temps, m)
	return m, nil
}

// giveBack lets later commands have the call's memory, but for the first pieces of it.
func (r *recorder) giveBack(kept int) {
	for _, m := range r.temps[kept:] {
		r.stream.scratch.put(block{memory: m, freed: r.stream.taken.Load() + 1})
	}
	r.temps = r.temps[:kept]
}

// settle sends what is recorded and waits until the GPU has done all that the stream gave it, also of a call in the middle of which it is.
func (r *recorder) settle() {
	r.stream.send(r)
	for r.stream.flying.Load() > 0 {
		<-r.stream.wake
	}
}

// clear sets a contiguous operand that has its memory for itself to zero.
func (r *recorder) clear(o *core.Operand) {
	slab, at := r.device.memory.slabOf(o.Memory)
	size := o.DType.Size()
	r.batch.list.Clear(slab.buffer, at+size*o.Offset, (size*o.Numel()+3)&^3)
}

// transcribe sets words of scratch memory to what the host has, by way of the batches' parameters.
func (r *recorder) transcribe(m core.Memory, words []uint32) {
	slab, at := r.device.memory.slabOf(m)
	for len(words) > 0 {
		n := min(len(words), paramsRoom/16)
		from := r.batch.putWords(4, words[:n])
		r.batch.list.Copy(slab.buffer, at, r.device.params, from, 4*n)
		words, at = words[n:], at+4*n
		if r.batch.full(fullBatch) {
			r.stream.send(r)
		}
	}
}

// begin returns the recorder's room for parameters, empty.
func (r *recorder) begin() []uint32 { return r.words[:0] }

// check reserves a word in which programs of the call say that they met a fault, by writing anything but 0 there, and
// returns the memory to bind and the word's index. err is called when the GPU has run the call, with a copy of it: the call
// itself is another one by then.
func (r *recorder) check(c *core.Call, err func(c *core.Call, fault uint32) error) (m core.Memory, index uint32, failure error) {
	s := r.stream
	if s.faults.Handle == 0 {
		if s.faults, failure = r.device.memory.take(4 * faultSlots); failure != nil {
			return m, 0, core.Errorf(core.MemoryError, c.Op, "no room for the words in which faults are told: %v", failure)
		}
		slab, at := r.device.memory.slabOf(s.faults)
		r.batch.list.Clear(slab.buffer, at, 4*faultSlots)
	}
	slot := len(r.batch.checks)
	kept := &core.Call{Op: c.Op, Outs: slices.Clone(c.Outs), Ins: slices.Clone(c.Ins), Ints: slices.Clone(c.Ints), InPlace: c.InPlace}
	r.batch.checks = append(r.batch.checks, check{kept, err})
	return s.faults, word(s.faults) + uint32(slot), nil
}

// base returns the index of the operand's first element in its slab.
func base(o *core.Operand) uint32 {
	return uint32(int(o.Memory.Handle&offsetMask)/o.DType.Size() + o.Offset)
}

// word returns the index of the first 32-bit word of a piece of memory in its slab.
func word(m core.Memory) uint32 { return uint32(m.Handle&offsetMask) / 4 }

func floatWord(v float64) uint32 { return math.Float32bits(float32(v)) }

func intWords(v int64) (low, high uint32) { return uint32(uint64(v)), uint32(uint64(v) >> 32) }
