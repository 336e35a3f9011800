package contract

import "github.com/plait-ml/plait/core"

// Reductions take the dimensions to reduce as their only integers. These dimensions are absent in the results, or have
// size 1.
var (
	Sum          = reduction("sum", core.Linear)
	Mean         = reduction("mean", core.Linear)
	Prod         = reduction("prod", core.NoPairs)
	Amax         = reduction("amax", core.NoPairs)
	Amin         = reduction("amin", core.NoPairs)
	Any          = reduction("any", core.NoPairs)
	All          = reduction("all", core.NoPairs)
	CountNonzero = reduction("count_nonzero", core.NoPairs)
	LogSumExp    = reduction("logsumexp", core.NoPairs)
	// NanSum is Sum of the floats that are not NaN.
	NanSum = reduction("nansum", core.NoPairs)

	// ComplexProd is Prod of complex numbers. Operations make it of products of pairs where a device lacks it.
	ComplexProd = reduction("complex_prod", core.Linear)

	// Var and Std also write the mean, if it is requested.
	Var = declare(Contract{Name: "var", Outs: "y mean?", Ins: "x", Ints: "dims...", Floats: "correction"})
	Std = declare(Contract{Name: "std", Outs: "y mean?", Ins: "x", Ints: "dims...", Floats: "correction"})
	// ArgMax and ArgMin write the index of the first extremum in row-major order over dims. They also write its value,
	// if it is requested.
	ArgMax = declare(Contract{Name: "argmax", Outs: "index value?", Ins: "x", Ints: "dims..."})
	ArgMin = declare(Contract{Name: "argmin", Outs: "index value?", Ins: "x", Ints: "dims..."})
	// Norm writes the p-norm.
	Norm = declare(Contract{Name: "norm", Outs: "y", Ins: "x", Ints: "dims...", Floats: "p"})
)

func reduction(name string, pairs core.Pairs) core.KernelID {
	return declare(Contract{Name: name, Outs: "y", Ins: "x", Ints: "dims...", Pairs: pairs})
}

// ReductionParam returns the float attribute of a reduction: the correction of [Var] and [Std], the p of [Norm]. Others
// return 0.
func ReductionParam(c *core.Call) float64 {
	if len(c.Floats) == 0 {
		return 0
	}
	return c.Floats[0]
}
