package contract

import "github.com/plait-ml/plait/core"

var (
	// Pad writes x with elements added at both ends of its last dimensions. x and y are contiguous, of one dtype. The
	// number is what mode [PadConstant] adds.
	Pad = declare(Contract{Name: "pad", Outs: "y", Ins: "x number", Ints: "dims mode left..."})
	// PadGrad writes the gradient of the input, given the gradient of the output. The number is not read.
	PadGrad = declare(Contract{Name: "pad_grad", Outs: "dx", Ins: "dy number", Ints: "dims mode left..."})
)

// A PadMode says where the added elements come from.
type PadMode int64

// The modes of [Pad].
const (
	PadConstant  PadMode = iota // C: PAD_CONSTANT
	PadReflect                  // C: PAD_REFLECT
	PadReplicate                // C: PAD_REPLICATE
	PadCircular                 // C: PAD_CIRCULAR
)

// SetPad adds the attributes of [Pad] and [PadGrad] to a call: the mode, and how many elements are added in front of
// each of the last dimensions. Negative numbers crop.
func SetPad(c *core.Call, mode PadMode, left []int) *core.Call {
	return c.Int(int64(len(left)), int64(mode)).Dims(left)
}

// PadAttrs are the attributes of [Pad] and [PadGrad] as kernels read them.
type PadAttrs struct {
	Mode PadMode
	Left []int64
}

// PadOf reads the attributes of a call.
func PadOf(c *core.Call) PadAttrs { return PadAttrs{PadMode(c.Ints[1]), c.Ints[2:]} }
