package op

func init() {
	reductionArgs := []Arg{
		{Name: "input"},
		{Name: "dim", Optional: true, Doc: "the dimensions to reduce; None means all"},
		{Name: "keepdim", Default: false, Doc: "keep the reduced dimensions with size 1"},
	}
	over := func(x T, dims []int, keepdim bool) []any { return []any{x, dims, keepdim} }
	one := func(x T, dims []int, keepdim bool) []any { return []any{x, dims[:min(len(dims), 1)], keepdim} }
	register("reduction",
		Row{Name: "sum", Func: Sum, Args: reductionArgs, Memory: true,
			Doc:     "The sum over dimensions. Integers and bools give int64; the sum of nothing is 0.",
			Samples: reductionSamples(Shaped, over, true)},
		Row{Name: "argmax", Func: ArgMax, Args: reductionArgs, Memory: true, NoGrad: "the result is an index",
			Doc:     "The index of the largest element along one dimension, or of all; the first of equal ones, and of a NaN if there is one.",
			Samples: reductionSamples(DistinctOf, one, false)},
		Row{Name: "argmin", Func: ArgMin, Args: reductionArgs, Memory: true, NoGrad: "the result is an index",
			Doc:     "The index of the smallest element along one dimension, or of all; the first of equal ones, and of a NaN if there is one.",
			Samples: reductionSamples(DistinctOf, one, false)},
		Row{Name: "any", Func: Any, Args: reductionArgs, Memory: true, NoGrad: "the result is a bool",
			Doc:     "Whether any element over dimensions is not zero.",
			Samples: reductionSamples(Shaped, over, true)},
		Row{Name: "all", Func: All, Args: reductionArgs, Memory: true, NoGrad: "the result is a bool",
			Doc:     "Whether no element over dimensions is zero.",
			Samples: reductionSamples(Shaped, over, true)},
		Row{Name: "count_nonzero", Func: CountNonzero, Args: reductionArgs[:2], Memory: true, NoGrad: "the result is a count",
			Doc:     "The number of elements over dimensions that are not zero.",
			Samples: reductionSamples(Shaped, func(x T, dims []int, _ bool) []any { return []any{x, dims} }, true)},
	)
}
