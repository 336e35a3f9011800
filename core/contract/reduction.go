package contract

import "github.com/plait-ml/plait/core"

// Reductions over dims, the only integers of their calls. The results' dimensions are left out, or of size 1.
var (
	Sum          = reduction("sum")
	Mean         = reduction("mean")
	Prod         = reduction("prod")
	Amax         = reduction("amax")
	Amin         = reduction("amin")
	Any          = reduction("any")
	All          = reduction("all")
	CountNonzero = reduction("count_nonzero")
	LogSumExp    = reduction("logsumexp")

	// Var and Std write the mean besides, if it is wanted.
	Var = declare(Contract{Name: "var", Outs: "y mean?", Ins: "x", Ints: "dims...", Floats: "correction"})
	Std = declare(Contract{Name: "std", Outs: "y mean?", Ins: "x", Ints: "dims...", Floats: "correction"})
	// ArgMax and ArgMin write the index of the first extreme, in row-major order over dims, and the value, if it is wanted.
	ArgMax = declare(Contract{Name: "argmax", Outs: "index value?", Ins: "x", Ints: "dims..."})
	ArgMin = declare(Contract{Name: "argmin", Outs: "index value?", Ins: "x", Ints: "dims..."})
	// Norm writes the p-norm.
	Norm = declare(Contract{Name: "norm", Outs: "y", Ins: "x", Ints: "dims...", Floats: "p"})
)

func reduction(name string) core.KernelID {
	return declare(Contract{Name: name, Outs: "y", Ins: "x", Ints: "dims..."})
}

// ReductionParam returns the number that a reduction has: the correction of [Var] and [Std], the p of [Norm]; 0 for others.
func ReductionParam(c *core.Call) float64 {
	if len(c.Floats) == 0 {
		return 0
	}
	return c.Floats[0]
}
