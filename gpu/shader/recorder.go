package shader

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// A Runtime carries out what kernels record: a stream of a GPU, or in tests a stand-in for one.
type Runtime interface {
	// Lookup returns the program of a key and the error it was compiled with; nil and no error if it was not compiled yet.
	Lookup(key Key) (Program, error)
	// Compile compiles the program of a key.
	Compile(key Key, source *Source) (Program, error)
	// Launch runs a program over a grid of x * y * z workgroups with its parameters and buffers, in the order of its bindings.
	// It keeps neither slice.
	Launch(p Program, x, y, z int, params []uint32, mems []core.Memory) error
	// Temp returns memory that belongs to the current call.
	Temp(bytes int) (core.Memory, error)
	// Temps returns how many pieces of memory the current call has; Release gives back all but the first kept.
	Temps() int
	Release(kept int)
	// Clear sets a contiguous operand that has its memory for itself to zero.
	Clear(o *core.Operand)
	// Upload sets the words of memory from Temp.
	Upload(m core.Memory, words []uint32)
	// Check reserves a word in which programs of the call report a fault by writing anything but 0. It returns the memory to bind
	// and the word's index in it. When the GPU has run the call, err is called with a copy of it and the word if that is not 0.
	Check(c *core.Call, err func(c *core.Call, fault uint32) error) (m core.Memory, index uint32, failure error)
	// Flush submits what is recorded if it is a full batch; Feed also if the GPU is idle.
	Flush()
	Feed()
	// Settle submits what is recorded, waits until the GPU is done, and reports whether it is still there.
	Settle() bool
}

// A Key identifies a program of a device: its name, and what it specialises on.
type Key struct {
	Name string
	Bits [5]uint64
	more string // what the words have no room for
}

const (
	// MaxParamBytes is how many bytes of parameters a program sees.
	MaxParamBytes = 512
	// MaxBuffers is how many buffers a program may bind, where the device lets it.
	MaxBuffers = 16
)

// A Program is what a [Runtime] compiled; only the runtime knows more of it.
type Program any

// A Recorder takes the dispatches of kernels.
type Recorder struct {
	Runtime
	GPU   *Device
	Words []uint32                // room for parameters
	Mems  [MaxBuffers]core.Memory // room for buffers
}

// Program returns the program of a key, which binds so many buffers; write writes it at the first use.
func (r *Recorder) Program(key Key, buffers int, write func(w *Text)) (Program, error) {
	if p, err := r.Lookup(key); p != nil || err != nil {
		return p, err
	}
	return r.Compile(key, r.Write(buffers, write))
}

// Write returns a program in the language of the GPU.
func (r *Recorder) Write(buffers int, write func(w *Text)) *Source {
	w := newText(r.GPU.Language, buffers)
	write(w)
	return w.source()
}

// Dispatch runs so many workgroups of a program, as rows of a grid where they are more than the device's limit.
func (r *Recorder) Dispatch(p Program, groups int, params []uint32, mems ...core.Memory) error {
	x, y := groups, 1
	if most := r.GPU.Workgroups; x > most {
		y = (groups + most - 1) / most
		x = (groups + y - 1) / y
	}
	return r.grid(p, x, y, 1, params, mems...)
}

// grid runs a program over a grid of workgroups.
func (r *Recorder) grid(p Program, x, y, z int, params []uint32, mems ...core.Memory) error {
	if x == 0 || y == 0 || z == 0 {
		return nil
	}
	if most := r.GPU.Workgroups; max(x, y, z) > most {
		return core.Errorf(core.DeviceError, "gpu", "a grid of %d x %d x %d workgroups is past the limit of %d", x, y, z, most)
	}
	if 4*len(params) > MaxParamBytes {
		return core.Errorf(core.DeviceError, "gpu", "%d parameters are past the limit of %d", len(params), MaxParamBytes/4)
	}
	return r.Launch(p, x, y, z, params, mems)
}

// Begin returns an empty list for parameters, whose memory is used again by the next program.
func (r *Recorder) Begin() []uint32 { return r.Words[:0] }

// A memory's handle is the number of its slab and its offset in it, in bytes.
const (
	HandleShift = 40
	OffsetMask  = 1<<HandleShift - 1
)

// Slab returns the number of the slab that memory lies in: the buffer that programs bind.
func Slab(m core.Memory) int { return int(m.Handle >> HandleShift) }

// Base returns the index of the operand's first element in its slab.
func Base(o *core.Operand) uint32 {
	return uint32(int(o.Memory.Handle&OffsetMask)/o.DType.Size() + o.Offset)
}

// Word returns the index of the first 32-bit word of a piece of memory in its slab.
func Word(m core.Memory) uint32 { return uint32(m.Handle&OffsetMask) / 4 }

// FloatWord returns the bits of a float32 parameter.
func FloatWord(v float64) uint32 { return math.Float32bits(float32(v)) }

// IntWords returns the two words of a parameter of 64 bits.
func IntWords(v int64) (low, high uint32) { return uint32(uint64(v)), uint32(uint64(v) >> 32) }
