package op

func init() {
	input, dim := Arg{Name: "input"}, Arg{Name: "dim"}
	dtype := Arg{Name: "dtype", Field: "DType", Optional: true, Doc: "the dtype of the result, to which the input is converted first"}
	args, with := []Arg{input, dim}, []Arg{input, dim, dtype}
	zeros := []Sample{
		{Name: "one zero", Args: []any{T{Shape: []int{2, 4}, Values: []float64{2, 0, 3, -1, 1, -2, 4, 3}}, 1}},
		{Name: "two zeros", Args: []any{T{Shape: []int{4, 2}, Values: []float64{2, 0, 0, 3, -1, 0, 3, 1}}, 0}},
	}
	register("scan",
		Row{Name: "cumsum", Func: CumSumWith, InPlace: CumSumInPlace, Args: with, Memory: true, Samples: alongSamples(Shaped),
			Doc: "The running sums along a dimension. Integers and bools give int64."},
		Row{Name: "cumprod", Func: CumProdWith, InPlace: CumProdInPlace, Args: with, Memory: true, Samples: append(alongSamples(Shaped), zeros...),
			Doc: "The running products along a dimension. Integers and bools give int64."},
		Row{Name: "cummax", Func: CumMax, Args: args, Memory: true, Samples: alongSamples(DistinctOf),
			Doc: "The running maxima along a dimension and their indices, the last of equal elements."},
		Row{Name: "cummin", Func: CumMin, Args: args, Memory: true, Samples: alongSamples(DistinctOf),
			Doc: "The running minima along a dimension and their indices, the last of equal elements."},
		Row{Name: "logcumsumexp", Func: LogCumSumExp, Args: args, Samples: alongSamples(Shaped),
			Doc: "The running logarithms of sums of exponentials along a dimension, without overflow."},
	)
}
