package contract

var (
	// Interpolate resamples the last dimensions of x to the sizes of y. Both are contiguous, of one dtype.
	Interpolate = declare(Contract{Name: "interpolate", Outs: "y", Ins: "x", Ints: "spatial mode align_corners", Floats: "scale..."})
	// InterpolateGrad writes the gradient of the input, given the gradient of the output.
	InterpolateGrad = declare(Contract{Name: "interpolate_grad", Outs: "dx", Ins: "dy", Ints: "spatial mode align_corners", Floats: "scale..."})
	// Resample writes weighted sums along a dimension: y[j] is the sum of weights[j, k] * x[first[j]+k] for k < count[j]. Both are
	// contiguous, of float32, float64 or uint8. Of bytes the weights are integers of 16 bits, and y[j] is the sum divided by 2^shift,
	// rounded, from 0 to 255.
	Resample = declare(Contract{Name: "resample", Outs: "y", Ins: "x", Ints: "dim shift windows...", Floats: "weights..."})
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

// ResampleAttrs are the attributes of [Resample].
type ResampleAttrs struct {
	Dim     int
	Shift   int       // of sums of bytes
	Windows []int64   // first and count of each element along the dimension of y
	Weights []float64 // as many for each element
}
