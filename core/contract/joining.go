package contract

// Cat concatenates the inputs, converted to y's dtype, along a dimension.
var Cat = declare(Contract{Name: "cat", Outs: "y", Ins: "parts...", Ints: "dim"})
