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
	// GridSample writes the values of x [n, c, spatial...] at the places grid [n, points..., k] of its k dimensions, the last one first, from -1
	// to 1: y [n, c, points...]. All are contiguous, of float32 or float64. The mode is linear, nearest or cubic; cubic wants two dimensions.
	GridSample = declare(Contract{Name: "grid_sample", Outs: "y", Ins: "x grid", Ints: "mode padding align_corners"})
	// GridSampleGrad writes the gradients of x and of the grid, given that of y.
	GridSampleGrad = declare(Contract{Name: "grid_sample_grad", Outs: "dx? dgrid?", Ins: "dy x grid", Ints: "mode padding align_corners"})
)

// A GridPadding says what lies outside the input of [GridSample].
type GridPadding int64

// The paddings.
const (
	GridZeros      GridPadding = iota // C: GRID_ZEROS
	GridBorder                        // C: GRID_BORDER
	GridReflection                    // C: GRID_REFLECTION
)

// GridAttrs are the attributes of [GridSample].
type GridAttrs struct {
	Mode         InterpolateMode
	Padding      GridPadding
	AlignCorners bool
}

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
