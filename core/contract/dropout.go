package contract

import "github.com/plait-ml/plait/core"

// Dropout writes 0 for some elements of x and the others times a scale. An absent x is 1.
var Dropout = declare(Contract{Name: "dropout", Outs: "y", Ins: "x?", Ints: "seed offset", Floats: "p scale"})

// DropoutAttrs are the attributes of [Dropout].
type DropoutAttrs struct {
	Seed, Offset int64   // of the generator
	P            float64 // the probability that an element is dropped
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
