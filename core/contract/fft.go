package contract

import "github.com/plait-ml/plait/core"

// FFT writes the discrete Fourier transforms of the lines of x along a dimension, times a factor. A complex tensor is given by its parts: it
// has one more dimension, of size 2 and stride 1, at the end. The length of a line is one that the device takes.
var FFT = declare(Contract{Name: "fft", Outs: "y", Ins: "x", Ints: "dim length kind inverse", Floats: "scale", Pairs: core.Leading})

// FFTMaxRadix is the largest prime factor of the lengths that a GPU takes. CPUs take all lengths.
const FFTMaxRadix = 31

// An FFTKind says what the lines of x and y are.
type FFTKind int64

// The kinds of [FFT]. Of the transform of a real line of length n, elements 0 to n/2 are kept: the others are their conjugates. The imaginary
// parts of elements 0 and, for even n, n/2 count as 0 when a line is made real. FFTRealToWhole keeps all; GPUs lack it.
const (
	FFTComplex     FFTKind = iota // C: FFT_COMPLEX
	FFTRealToHalf                 // C: FFT_REAL_TO_HALF
	FFTHalfToReal                 // C: FFT_HALF_TO_REAL
	FFTRealToWhole                // C: FFT_REAL_TO_WHOLE
)

// FFTAttrs are the attributes of [FFT].
type FFTAttrs struct {
	Dim    int
	Length int // of a line, where it is whole
	Kind   FFTKind
	// Inverse says that exponents are positive. The kernel that makes half of real lines then writes conjugates; without it, the one that
	// makes them real reads conjugates.
	Inverse bool
	Scale   float64
}
