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
		Row{Name: "max", Func: Max, Memory: true, Samples: keepdimSamples(),
			Args: []Arg{input, dim, {Name: "keepdim", Default: false}},
			Doc:  "The largest elements along a dimension and their indices, the first of equal elements."},
		Row{Name: "min", Func: Min, Memory: true, Samples: keepdimSamples(),
			Args: []Arg{input, dim, {Name: "keepdim", Default: false}},
			Doc:  "The smallest elements along a dimension and their indices, the first of equal elements."},
	)
}

// alongSamples returns samples of an operation along a dimension, with further arguments.
func alongSamples(tensor func(shape ...int) T, more ...any) []Sample {
	args := func(dim int, shape ...int) []any { return append([]any{tensor(shape...), dim}, more...) }
	return []Sample{
		{Name: "0-d", Args: args(0)},
		{Name: "1-d", Args: args(0, 6)},
		{Name: "last", Args: args(-1, 3, 4)},
		{Name: "first", Args: args(0, 4, 3)},
		{Name: "middle", Args: args(1, 2, 3, 2)},
		{Name: "4-d", Args: args(2, 2, 1, 3, 2)},
		{Name: "size 1", Args: args(1, 3, 1)},
		{Name: "empty", Args: args(1, 2, 0)},
		{Name: "no line", Args: args(0, 3, 0)},
	}
}

func keepdimSamples() []Sample {
	var list []Sample
	for i, s := range alongSamples(DistinctOf) {
		if s.Name != "empty" {
			s.Args = append(s.Args, i%2 == 0)
			list = append(list, s)
		}
	}
	return list
}
