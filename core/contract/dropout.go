package contract

import "github.com/plait-ml/plait/core"

// Dropout zeroes random elements of x and multiplies the others by scale. Without x, every element counts as 1.
var Dropout = declare(Contract{Name: "dropout", Outs: "y", Ins: "x?", Ints: "seed offset", Floats: "p scale"})

// DropoutAttrs are the attributes of [Dropout].
type DropoutAttrs struct {
	Seed, Offset int64   // of the random generator
	P            float64 // the probability that an element is zeroed
	Scale        float64
}

// AddTo adds the attributes to a call and returns it.
func (a DropoutAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(a.Seed, a.Offset).Float(a.P, a.Scale)
}

// DropoutOf reads the attributes of a call.
func DropoutOf(c *core.Call) DropoutAttrs {
	return DropoutAttrs{c.Ints[0], c.Ints[1], c.Floats[0], c.Floats[1]}
}
