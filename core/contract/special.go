package contract

import "github.com/plait-ml/plait/core"

// Operands are contiguous, of one floating-point dtype.
var (
	// NextAfter writes the next floating-point number after x towards to.
	NextAfter = declare(Contract{Name: "nextafter", Outs: "y", Ins: "x to"})
	// Frexp writes mantissas, and exponents as int32.
	Frexp = declare(Contract{Name: "frexp", Outs: "mantissa exponent", Ins: "x"})
	// Special computes a function of one argument.
	Special = declare(Contract{Name: "special_function", Outs: "y", Ins: "x", Ints: "function"})
	// SpecialPair computes a function of two arguments.
	SpecialPair = declare(Contract{Name: "special_pair", Outs: "y", Ins: "x other", Ints: "function derivative"})
)

// A SpecialFunction is a function of one argument.
type SpecialFunction int64

// The functions of [Special].
const (
	SpecialI0      SpecialFunction = iota // C: SPECIAL_I0
	SpecialI1                             // C: SPECIAL_I1
	SpecialI0e                            // C: SPECIAL_I0E
	SpecialI1e                            // C: SPECIAL_I1E
	SpecialK0                             // C: SPECIAL_K0
	SpecialK1                             // C: SPECIAL_K1
	SpecialK0e                            // C: SPECIAL_K0E
	SpecialK1e                            // C: SPECIAL_K1E
	SpecialJ0                             // C: SPECIAL_J0
	SpecialJ1                             // C: SPECIAL_J1
	SpecialY0                             // C: SPECIAL_Y0
	SpecialY1                             // C: SPECIAL_Y1
	SpecialErfcx                          // C: SPECIAL_ERFCX
	SpecialLogNdtr                        // C: SPECIAL_LOG_NDTR
	SpecialNdtri                          // C: SPECIAL_NDTRI
	SpecialAiryAi                         // C: SPECIAL_AIRY_AI
)

// A SpecialPairFunction is a function of two arguments.
type SpecialPairFunction int64

// The functions of [SpecialPair].
const (
	SpecialGammaInc   SpecialPairFunction = iota // C: SPECIAL_GAMMAINC
	SpecialGammaIncc                             // C: SPECIAL_GAMMAINCC
	SpecialHermiteH                              // C: SPECIAL_HERMITE_H
	SpecialHermiteHe                             // C: SPECIAL_HERMITE_HE
	SpecialLaguerre                              // C: SPECIAL_LAGUERRE
	SpecialLegendre                              // C: SPECIAL_LEGENDRE
	SpecialChebyshevT                            // C: SPECIAL_CHEBYSHEV_T
	SpecialChebyshevU                            // C: SPECIAL_CHEBYSHEV_U
	SpecialChebyshevV                            // C: SPECIAL_CHEBYSHEV_V
	SpecialChebyshevW                            // C: SPECIAL_CHEBYSHEV_W
	SpecialShiftedT                              // the first of four shifted polynomials, with argument 2x - 1; C: SPECIAL_SHIFTED
	SpecialShiftedU
	SpecialShiftedV
	SpecialShiftedW
)

// SpecialOf reads the function of a call of [Special].
func SpecialOf(c *core.Call) SpecialFunction { return SpecialFunction(c.Ints[0]) }

// SpecialPairAttrs are the attributes of [SpecialPair].
type SpecialPairAttrs struct {
	Function   SpecialPairFunction
	Derivative bool // of a polynomial, with respect to x
}
