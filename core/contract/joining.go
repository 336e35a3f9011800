package contract

import "github.com/plait-ml/plait/core"

// Cat concatenates the inputs, converted to y's dtype, along a dimension.
var Cat = declare(Contract{Name: "cat", Outs: "y", Ins: "parts...", Ints: "dim", Pairs: core.Linear})
