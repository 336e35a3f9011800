package op

import (
	"math"
	"slices"
)

func init() {
	input := Arg{Name: "input"}
	dim := Arg{Name: "dim", Optional: true, Doc: "the dimensions to reduce; None means all"}
	keepdim := Arg{Name: "keepdim", Default: false, Doc: "keep the reduced dimensions with size 1"}
	keepdimField := Arg{Name: "keepdim", Field: "KeepDim", Default: false, Doc: "keep the reduced dimensions with size 1"}
	dtype := Arg{Name: "dtype", Field: "DType", Optional: true, Doc: "the dtype of the result, to which the input is converted first"}
	correction := Arg{Name: "correction", Default: 1.0, Doc: "what the number of elements is lessened by before the division"}

	plain := []Arg{input, dim, keepdim}
	with := []Arg{input, dim, keepdimField, dtype}
	choice := []Arg{input, dim, keepdimField, evenArg}
	spread := []Arg{input, dim, correction, keepdim}
	over := func(x T, dims []int, keepdim bool) []any { return []any{x, dims, keepdim} }
	chosen := func(x T, dims []int, keepdim bool) []any { return []any{x, dims, ChoiceOptions{KeepDim: keepdim}} }
	options := func(x T, dims []int, keepdim bool) []any { return []any{x, dims, ReduceOptions{KeepDim: keepdim}} }
	one := func(x T, dims []int, keepdim bool) []any { return []any{x, dims[:min(len(dims), 1)], keepdim} }
	corrected := func(x T, dims []int, keepdim bool) []any { return []any{x, dims, 0.5, keepdim} }
	ordered := func(p float64) func(x T, dims []int, keepdim bool) []any {
		return func(x T, dims []int, keepdim bool) []any { return []any{x, p, dims, ReduceOptions{KeepDim: keepdim}} }
	}
	away := func(shape ...int) T { return Between(0.3, 2, shape...) }

	register("reduction",
		Row{Name: "sum", Func: SumWith, Args: with, Memory: true,
			Doc:     "The sum over dimensions. Integers and bools give int64; the sum of nothing is 0.",
			Samples: reductionSamples(Shaped, options, true)},
		Row{Name: "mean", Func: MeanWith, Args: with, Memory: true,
			Doc:     "The mean over dimensions of a floating-point tensor. The mean of nothing is NaN.",
			Samples: reductionSamples(Shaped, options, false)},
		Row{Name: "prod", Func: ProdWith, Args: with, Elementwise: []*Elementwise{prodGrad}, Memory: true,
			Doc: "The product over dimensions. Integers and bools give int64; the product of nothing is 1.",
			Samples: append(reductionSamples(Shaped, options, true),
				Sample{Name: "one zero", Args: []any{T{Shape: []int{2, 3}, Values: []float64{2, 0, 3, 1, -2, 4}}, []int{1}, ReduceOptions{}}},
				Sample{Name: "two zeros", Args: []any{T{Shape: []int{2, 3}, Values: []float64{0, 0, 3, 0, -2, 0}}, []int{1}, ReduceOptions{}}})},
		Row{Name: "amax", Func: AmaxWith, Args: choice, Elementwise: []*Elementwise{extremeGrad}, Memory: true,
			Doc:     "The largest elements over dimensions. Equal ones share the gradient evenly.",
			Samples: append(reductionSamples(DistinctOf, chosen, false), Sample{Name: "even", Args: []any{DistinctOf(2, 3), []int{1}, ChoiceOptions{Even: true}}})},
		Row{Name: "amin", Func: AminWith, Args: choice, Memory: true,
			Doc:     "The smallest elements over dimensions. Equal ones share the gradient evenly.",
			Samples: append(reductionSamples(DistinctOf, chosen, false), Sample{Name: "even", Args: []any{DistinctOf(2, 3), []int{1}, ChoiceOptions{Even: true}}})},
		Row{Name: "argmax", Func: ArgMax, Args: plain, Memory: true, NoGrad: "the result is an index",
			Doc:     "The index of the largest element along one dimension, or of all; the first of equal ones, and of a NaN if there is one.",
			Samples: reductionSamples(DistinctOf, one, false)},
		Row{Name: "argmin", Func: ArgMin, Args: plain, Memory: true, NoGrad: "the result is an index",
			Doc:     "The index of the smallest element along one dimension, or of all; the first of equal ones, and of a NaN if there is one.",
			Samples: reductionSamples(DistinctOf, one, false)},
		Row{Name: "any", Func: Any, Args: plain, Memory: true, NoGrad: "the result is a bool",
			Doc:     "Whether any element over dimensions is not zero.",
			Samples: reductionSamples(Shaped, over, true)},
		Row{Name: "all", Func: All, Args: plain, Memory: true, NoGrad: "the result is a bool",
			Doc:     "Whether no element over dimensions is zero.",
			Samples: reductionSamples(Shaped, over, true)},
		Row{Name: "count_nonzero", Func: CountNonzero, Args: plain[:2], Memory: true, NoGrad: "the result is a count",
			Doc:     "The number of elements over dimensions that are not zero.",
			Samples: reductionSamples(Shaped, func(x T, dims []int, _ bool) []any { return []any{x, dims} }, true)},
		Row{Name: "var", Func: Var, Args: spread, Elementwise: []*Elementwise{varGrad}, Memory: true,
			Doc:     "The variance over dimensions of a floating-point tensor.",
			Samples: reductionSamples(Shaped, corrected, false)},
		Row{Name: "std", Func: Std, Args: spread, Elementwise: []*Elementwise{stdGrad}, Memory: true,
			Doc:     "The standard deviation over dimensions of a floating-point tensor.",
			Samples: stdSamples(corrected)},
		Row{Name: "var_mean", Func: VarMean, Args: spread, Memory: true,
			Doc:     "The variance and the mean over dimensions of a floating-point tensor.",
			Samples: reductionSamples(Shaped, corrected, false)},
		Row{Name: "std_mean", Func: StdMean, Args: spread, Memory: true,
			Doc:     "The standard deviation and the mean over dimensions of a floating-point tensor.",
			Samples: stdSamples(corrected)},
		Row{Name: "logsumexp", Func: LogSumExp, Args: plain, Elementwise: []*Elementwise{logSumExpGrad},
			Doc:     "The logarithm of the sum of exponentials over dimensions, without overflow.",
			Samples: reductionSamples(Shaped, over, false)},
		Row{Name: "norm", Func: Norm, Args: []Arg{input, {Name: "p", Default: 2.0}, dim, keepdimField, dtype}, Memory: true,
			Doc:     "The p-norm over dimensions of a floating-point tensor, as vector_norm.",
			Samples: reductionSamples(away, ordered(2), false)},
		Row{Name: "vector_norm", Func: VectorNorm, Args: []Arg{input, {Name: "ord", Default: 2.0}, dim, keepdimField, dtype},
			Elementwise: []*Elementwise{norm2Grad, normGrad}, Memory: true,
			Doc: "The p-norm over dimensions of a floating-point tensor: the p-th root of the sum of |x|^p; for inf and -inf the largest and smallest |x|, for 0 the number of elements that are not 0.",
			Samples: slices.Concat(reductionSamples(away, ordered(3), false),
				named("p=1 ", reductionSamples(Shaped, ordered(1), false)[:3]),
				named("p=inf ", reductionSamples(DistinctOf, ordered(math.Inf(1)), false)[:3]),
				named("p=-inf ", reductionSamples(DistinctOf, ordered(math.Inf(-1)), false)[:3]),
				named("p=1.5 ", reductionSamples(away, ordered(1.5), false)[:3]))},
		Row{Name: "max", Func: Max, Memory: true, Samples: keepdimSamples(),
			Args: inputAnd(Arg{Name: "dim"}, Arg{Name: "keepdim", Default: false}),
			Doc:  "The largest elements along a dimension and their indices, the first of equal elements."},
		Row{Name: "min", Func: Min, Memory: true, Samples: keepdimSamples(),
			Args: inputAnd(Arg{Name: "dim"}, Arg{Name: "keepdim", Default: false}),
			Doc:  "The smallest elements along a dimension and their indices, the first of equal elements."},
	)
}

// stdSamples are those of a reduction without the ones of single elements, where the root has no derivative.
func stdSamples(args func(x T, dims []int, keepdim bool) []any) []Sample {
	var list []Sample
	for _, s := range reductionSamples(Shaped, args, false) {
		if s.Name != "size 1" && s.Name != "0-d" {
			list = append(list, s)
		}
	}
	return list
}
