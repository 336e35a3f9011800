package contract

var (
	// Copy writes x, of y's shape, converted to y's dtype. x may be a number.
	Copy = declare(Contract{Name: "copy", Outs: "y", Ins: "x"})
	// Fill writes a number to all of y.
	Fill = declare(Contract{Name: "fill", Outs: "y", Ins: "number"})
)
