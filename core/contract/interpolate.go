package contract

var (
	// Interpolate resamples the last dimensions of x to the sizes of y. Both are contiguous, of one dtype.
	Interpolate = declare(Contract{Name: "interpolate", Outs: "y", Ins: "x", Ints: "spatial mode align_corners", Floats: "scale..."})
	// InterpolateGrad writes the gradient of the input, given the gradient of the output.
	InterpolateGrad = declare(Contract{Name: "interpolate_grad", Outs: "dx", Ins: "dy", Ints: "spatial mode align_corners", Floats: "scale..."})
)

// An InterpolateMode is the method of interpolation.
type InterpolateMode int64

// The modes of [Interpolate].
const (
	InterpolateNearest      InterpolateMode = iota // C: INTERPOLATE_NEAREST
	InterpolateNearestExact                        // C: INTERPOLATE_NEAREST_EXACT
	InterpolateLinear                              // C: INTERPOLATE_LINEAR
	InterpolateCubic                               // C: INTERPOLATE_CUBIC
)

// InterpolateAttrs are the attributes of [Interpolate] and [InterpolateGrad].
type InterpolateAttrs struct {
	Spatial      int // the number of spatial dimensions, which are the last ones
	Mode         InterpolateMode
	AlignCorners bool
	Scale        []float64 // of each spatial dimension; 0 to derive it from the sizes
}
