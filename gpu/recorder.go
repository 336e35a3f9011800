package gpu

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// A Runtime carries out what kernels record: a stream of a GPU, or in tests a stand-in for one.
type Runtime interface {
	// Program returns the program of a key and the error it was compiled with; nil and no error if it was not compiled yet.
	Program(key programKey) (Program, error)
	// Compile compiles the text of the program of a key, which binds so many buffers.
	Compile(key programKey, buffers int, text string) (Program, error)
	// Dispatch runs a program over a grid of x * y * z workgroups with its parameters and buffers, in the order of its bindings.
	// It keeps neither slice.
	Dispatch(p Program, x, y, z int, params []uint32, mems []core.Memory) error
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

// A programKey names a program among those of its device: the generator's name, and what it specialises on.
type programKey struct {
	name string
	bits [5]uint64
	more string // of a [shader], the choices for which bits have no room
}

const (
	// paramsWindow is how many bytes of parameters a program sees.
	paramsWindow = 512
	// maxBuffers is how many buffers a program may bind, where the device lets it.
	maxBuffers = 16
)

// A Program is what a [Runtime] compiled; only the runtime knows more of it.
type Program any

// A recorder is what kernels put their dispatches on.
type recorder struct {
	Runtime
	GPU   *target
	words []uint32                // room for parameters
	mems  [maxBuffers]core.Memory // room for buffers
}

// program returns the program of a key, whose text source writes when it is needed for the first time.
func (r *recorder) program(key programKey, buffers int, source func() string) (Program, error) {
	if p, err := r.Program(key); p != nil || err != nil {
		return p, err
	}
	return r.Compile(key, buffers, source())
}

// dispatch runs a program over workgroups in a row, folded into several rows where the device's limit asks for it.
func (r *recorder) dispatch(p Program, groups int, params []uint32, mems ...core.Memory) error {
	x, y := groups, 1
	if most := r.GPU.Workgroups; x > most {
		y = (groups + most - 1) / most
		x = (groups + y - 1) / y
	}
	return r.grid(p, x, y, 1, params, mems...)
}

// grid runs a program over a grid of workgroups.
func (r *recorder) grid(p Program, x, y, z int, params []uint32, mems ...core.Memory) error {
	if x == 0 || y == 0 || z == 0 {
		return nil
	}
	if most := r.GPU.Workgroups; max(x, y, z) > most {
		return core.Errorf(core.DeviceError, "gpu", "a grid of %d x %d x %d workgroups is past the limit of %d", x, y, z, most)
	}
	if 4*len(params) > paramsWindow {
		return core.Errorf(core.DeviceError, "gpu", "%d parameters are past the limit of %d", len(params), paramsWindow/4)
	}
	return r.Dispatch(p, x, y, z, params, mems)
}

// begin returns the recorder's room for parameters, empty.
func (r *recorder) begin() []uint32 { return r.words[:0] }

// A memory's handle is the number of its slab and its offset in it, in bytes.
const (
	handleShift = 40
	offsetMask  = 1<<handleShift - 1
)

// slabNumber returns the number of the slab that memory lies in: the buffer that programs bind.
func slabNumber(m core.Memory) int { return int(m.Handle >> handleShift) }

// base returns the index of the operand's first element in its slab.
func base(o *core.Operand) uint32 {
	return uint32(int(o.Memory.Handle&offsetMask)/o.DType.Size() + o.Offset)
}

// word returns the index of the first 32-bit word of a piece of memory in its slab.
func word(m core.Memory) uint32 { return uint32(m.Handle&offsetMask) / 4 }

func floatWord(v float64) uint32 { return math.Float32bits(float32(v)) }

func intWords(v int64) (low, high uint32) { return uint32(uint64(v)), uint32(uint64(v) >> 32) }
