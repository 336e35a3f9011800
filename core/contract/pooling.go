package contract

import "github.com/plait-ml/plait/core"

// Operands are contiguous. A plane is the spatial dimensions, the last ones. An index is an int64 position within its
// plane.
var (
	// MaxPool writes the maximum of each window and, if index is present, its position.
	MaxPool = declare(Contract{Name: "max_pool", Outs: "y index?", Ins: "x", Ints: "spatial adaptive windows..."})
	// AvgPool writes the average of each window.
	AvgPool = declare(Contract{Name: "avg_pool", Outs: "y", Ins: "x", Ints: "spatial adaptive windows..."})
	// AvgPoolGrad writes the gradient of the input, given the gradient of the output.
	AvgPoolGrad = declare(Contract{Name: "avg_pool_grad", Outs: "dx", Ins: "dy", Ints: "spatial adaptive windows..."})
	// PlaneGather writes y[p, i] = x[p, index[p, i]].
	PlaneGather = declare(Contract{Name: "plane_gather", Outs: "y", Ins: "x index", Ints: "spatial"})
	// PlaneScatter zeroes y. Then y[p, index[p, i]] gets the sum of all x[p, i] with that index, or the last of them.
	// The attributes of the max pooling that made the index may follow.
	PlaneScatter = declare(Contract{Name: "plane_scatter", Outs: "y", Ins: "x index", Ints: "spatial add pool..."})
)

// PoolWindows are the windows of a pooling, with an entry for each spatial dimension.
type PoolWindows[T int | int64] struct {
	Kernel, Stride, Padding, Dilation []T
	IncludePad                        bool // averages count padding
	Divisor                           int  // of averages; 0 for the number of elements in the window
}

// SetPool adds the attributes of a pooling to a call: the number of spatial dimensions and the windows. Nil windows
// stand for adaptive pooling.
func SetPool(c *core.Call, spatial int, w *PoolWindows[int]) {
	c.Int(int64(spatial), Flag(w == nil))
	if w != nil {
		c.Dims(w.Kernel).Dims(w.Stride).Dims(w.Padding).Dims(w.Dilation).Int(Flag(w.IncludePad), int64(w.Divisor))
	}
}

// PoolAttrs are the attributes of a pooling as kernels read them.
type PoolAttrs struct {
	Spatial  int
	Adaptive bool
	PoolWindows[int64]
}

// PoolOf reads the attributes of a call.
func PoolOf(c *core.Call) PoolAttrs { return poolOf(c.Ints) }

func poolOf(ints []int64) PoolAttrs {
	a := PoolAttrs{Spatial: int(ints[0]), Adaptive: ints[1] != 0}
	if !a.Adaptive {
		nd, v := a.Spatial, ints[2:]
		a.Kernel, a.Stride, a.Padding, a.Dilation = v[:nd], v[nd:2*nd], v[2*nd:3*nd], v[3*nd:4*nd]
		a.IncludePad, a.Divisor = v[4*nd] != 0, int(v[4*nd+1])
	}
	return a
}

// PlaneScatterAttrs are the attributes of [PlaneScatter]. Those of [SetPool] may follow.
type PlaneScatterAttrs struct {
	Spatial int
	Add     bool // sum all values of an index; otherwise the last one stays
}

// PlaneScatterPool returns the attributes of the max pooling that made the index. It returns false if the call has
// none.
func PlaneScatterPool(c *core.Call) (PoolAttrs, bool) {
	if len(c.Ints) == 2 {
		return PoolAttrs{}, false
	}
	return poolOf(c.Ints[2:]), true
}

// PlaneSpatial returns the number of spatial dimensions of a call of [PlaneGather].
func PlaneSpatial(c *core.Call) int { return int(c.Ints[0]) }
