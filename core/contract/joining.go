package contract

// Cat writes the inputs, converted to y's dtype, one after the other along a dimension.
var Cat = declare(Contract{Name: "cat", Outs: "y", Ins: "parts...", Ints: "dim"})
