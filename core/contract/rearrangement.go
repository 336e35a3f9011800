package contract

import "github.com/plait-ml/plait/core"

var (
	// Triangle writes the part of each matrix of x below a diagonal, or above it, and 0 elsewhere. x may be y.
	Triangle = declare(Contract{Name: "triangle", Outs: "y", Ins: "x", Ints: "diagonal upper"})
	// RepeatIndex writes each i, from 0 on, as often as counts[i] says. Both are int64 and contiguous.
	RepeatIndex = declare(Contract{Name: "repeat_index", Outs: "y", Ins: "counts"})
)

// TriangleAttrs are the attributes of [Triangle].
type TriangleAttrs struct {
	Diagonal int64
	Upper    bool
}

// AddTo adds the attributes to a call and returns it.
func (a TriangleAttrs) AddTo(c *core.Call) *core.Call { return c.Int(a.Diagonal, Flag(a.Upper)) }

// TriangleOf reads the attributes of a call.
func TriangleOf(c *core.Call) TriangleAttrs { return TriangleAttrs{c.Ints[0], c.Ints[1] != 0} }
