package contract

// Combine reduces the inputs element by element, in their order, and writes the result to every output. A divisor other
// than 0 divides it. All operands are of one dtype and length, and contiguous or, on a CPU, of one shape of two dimensions, whose
// rows are contiguous. A call can do so for several segments, which have their own lengths: its operands are those of the first
// segment, then those of the second, and so on, as many for each. Collectives launch this kernel.
var Combine = declare(Contract{Name: "combine", Outs: "targets...", Ins: "sources...", Ints: "op segments", Floats: "divisor"})

// A CombineOp is the reduction of [Combine].
type CombineOp int64

// The operations of [Combine].
const (
	CombineCopy    CombineOp = iota // C: PLAITK_COPY
	CombineSum                      // C: PLAITK_SUM
	CombineProduct                  // C: PLAITK_PRODUCT
	CombineMin                      // C: PLAITK_MIN
	CombineMax                      // C: PLAITK_MAX
	CombineBitAnd                   // C: PLAITK_BIT_AND
	CombineBitOr                    // C: PLAITK_BIT_OR
	CombineBitXor                   // C: PLAITK_BIT_XOR
)

// CombineAttrs are the attributes of [Combine].
type CombineAttrs struct {
	Op       CombineOp
	Segments int64   // 0 for one
	Divisor  float64 // 0 for no division
}
