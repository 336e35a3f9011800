package contract

import "github.com/plait-ml/plait/core"

var (
	// Copy writes x to y, converted to y's dtype. Shapes are equal, or x is a number.
	Copy = declare(Contract{Name: "copy", Outs: "y", Ins: "x", Pairs: core.Linear})
	// Fill writes a number to all elements of y.
	Fill = declare(Contract{Name: "fill", Outs: "y", Ins: "number", Pairs: core.Linear})
)
