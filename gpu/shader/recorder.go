package shader

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// A Runtime executes what kernels record. It is a stream of a GPU, or a stand-in in tests.
type Runtime interface {
	// Lookup returns the program of a key, and the error of its compilation. Both are nil if it has not been compiled.
	Lookup(key Key) (Program, error)
	// Compile compiles the program of a key.
	Compile(key Key, source *Source) (Program, error)
	// Launch runs a program over a grid of x * y * z workgroups. mems are the buffers in the order of the bindings. Launch keeps neither
	// slice.
	Launch(p Program, x, y, z int, params []uint32, mems []core.Memory) error
	// Product has the library of the GPU's vendor compute matrix products. It returns false, and does nothing, if there is none or if it
	// does not take the product.
	Product(p *Product) (done bool, err error)
	// Temp returns scratch memory, which is released at the end of the call.
	Temp(bytes int) (core.Memory, error)
	// Temps returns how many pieces of scratch memory the call holds. Release releases all but the first kept pieces.
	Temps() int
	Release(kept int)
	// Clear sets a contiguous operand to zero. No other operand may share its memory.
	Clear(o *core.Operand)
	// Upload writes words to memory that came from Temp.
	Upload(m core.Memory, words []uint32)
	// Transfer copies one contiguous operand to another of the same dtype and size without a program, if that is possible and pays, as
	// between GPUs.
	Transfer(to, from *core.Operand) (done bool, err error)
	// Check reserves a word in which programs of the call report a fault by writing a value other than 0. It returns the memory to bind and
	// the index of the word in it. After the GPU has run the call, err is called with a copy of the call and the word, if the word is not
	// 0.
	Check(c *core.Call, err func(c *core.Call, fault uint32) error) (m core.Memory, index uint32, failure error)
	// Flush submits the recorded commands if they are a full batch. Feed submits them also if the GPU is idle.
	Flush()
	Feed()
	// Finish submits the recorded commands, waits for the GPU, and reports whether the device is still usable.
	Finish() bool
}

// A Key identifies a program of a device by its name and the numbers that it is specialised on.
type Key struct {
	Name string
	Bits [5]uint64
	// Double says that the program computes in float64. [Recorder.Program] sets it.
	Double bool
	more   string // the bytes that do not fit Bits
}

const (
	// MaxParamBytes is the size of a program's parameters at most.
	MaxParamBytes = 512
	// MaxBuffers is how many buffers a program may bind, if the device allows as many.
	MaxBuffers = 16
)

// A Program is a compiled program. Only the runtime knows its type.
type Program any

// A Recorder takes the dispatches of kernels and passes them to the runtime.
type Recorder struct {
	Runtime
	GPU     *Device
	Words   []uint32                // a list for parameters, reused by each program
	Mems    [MaxBuffers]core.Memory // a list for buffers, reused
	Float64 bool                    // programs of the call compute in float64: see [Doubles]
}

// Program returns the program of a key, which binds the given number of buffers. At the first use, write writes its text.
func (r *Recorder) Program(key Key, buffers int, write func(w *Text)) (Program, error) {
	key.Double = r.Float64
	if p, err := r.Lookup(key); p != nil || err != nil {
		return p, err
	}
	return r.Compile(key, r.Write(buffers, write))
}

// Write returns the text of a program in the language of the GPU.
func (r *Recorder) Write(buffers int, write func(w *Text)) *Source {
	w := newText(r.GPU.Language, buffers, r.Float64)
	write(w)
	return w.source()
}

// Dispatch runs a number of workgroups of a program. If there are more than the device allows along one dimension, the grid has several
// rows; the last workgroups may be beyond the number.
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

// Begin returns an empty list for parameters, in memory that every program reuses.
func (r *Recorder) Begin() []uint32 { return r.Words[:0] }

// The handle of a piece of memory is the number of its slab, shifted by HandleShift, and its byte offset in the slab.
const (
	HandleShift = 40
	OffsetMask  = 1<<HandleShift - 1
)

// Slab returns the number of the slab that memory is in. A program binds whole slabs.
func Slab(m core.Memory) int { return int(m.Handle >> HandleShift) }

// Base returns the index of the operand's first element in its slab.
func Base(o *core.Operand) uint32 {
	return uint32(int(o.Memory.Handle&OffsetMask)/o.DType.Size() + o.Offset)
}

// Word returns the index of the first 32-bit word of a piece of memory in its slab.
func Word(m core.Memory) uint32 { return uint32(m.Handle&OffsetMask) / 4 }

// FloatWord returns the word of a float32 parameter.
func FloatWord(v float64) uint32 { return math.Float32bits(float32(v)) }

// RealWords appends the words of a parameter of [Recorder.RealType]: one or two.
func (r *Recorder) RealWords(w []uint32, v float64) []uint32 {
	if r.Float64 {
		low, high := IntWords(int64(math.Float64bits(v)))
		return append(w, low, high)
	}
	return append(w, FloatWord(v))
}

// realParam returns the expression for a parameter of type [Real], whose first word has the given number, and the number of its words.
func realParam(at int, double bool) (expression string, words int) {
	if double {
		return "bitcast<real>(pair(" + Param(at) + ", " + Param(at+1) + "))", 2
	}
	return "bitcast<real>(" + Param(at) + ")", 1
}

// IntWords returns the two words of a 64-bit parameter.
func IntWords(v int64) (low, high uint32) { return uint32(uint64(v)), uint32(uint64(v) >> 32) }
