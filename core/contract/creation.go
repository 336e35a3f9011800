package contract

import "github.com/plait-ml/plait/core"

var (
	// Arange writes start + i * step. Integer dtypes take the integer attributes, other dtypes the floats.
	Arange = declare(Contract{Name: "arange", Outs: "y", Ints: "start step", Floats: "start step"})
	// Linspace writes evenly spaced numbers from start to end, both included.
	Linspace = declare(Contract{Name: "linspace", Outs: "y", Floats: "start end"})
	// Logspace writes base to the power of evenly spaced numbers.
	Logspace = declare(Contract{Name: "logspace", Outs: "y", Floats: "start end base"})
	// TriangleIndices writes the row and column indices of a triangle's elements: int64 of shape [2, count].
	TriangleIndices = declare(Contract{Name: "triangle_indices", Outs: "y", Ints: "rows columns diagonal upper"})
)

// ArangeAttrs are the attributes of [Arange].
type ArangeAttrs struct {
	Start, Step           int64
	FloatStart, FloatStep float64
}

// SpaceAttrs are the attributes of [Linspace] and [Logspace].
type SpaceAttrs struct {
	Start, End float64
	Base       float64 // of Logspace only
}

// AddTo adds the attributes to a call and returns it.
func (a SpaceAttrs) AddTo(c *core.Call) *core.Call {
	if c.Float(a.Start, a.End); c.Kernel == Logspace {
		c.Float(a.Base)
	}
	return c
}

// SpaceOf reads the attributes of a call.
func SpaceOf(c *core.Call) SpaceAttrs {
	a := SpaceAttrs{Start: c.Floats[0], End: c.Floats[1]}
	if len(c.Floats) > 2 {
		a.Base = c.Floats[2]
	}
	return a
}

// TriangleIndicesAttrs are the attributes of [TriangleIndices].
type TriangleIndicesAttrs struct {
	Rows, Columns, Diagonal int
	Upper                   bool // the part above the diagonal, not below
}
