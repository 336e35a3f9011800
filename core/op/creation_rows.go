package op

import "github.com/plait-ml/plait/core"

func init() {
	const constant = "there is no tensor that a gradient could pass to"
	options := []Arg{
		{Name: "dtype", Field: "DType", Optional: true, Doc: "of the result"},
		{Name: "device", Field: "Device", Optional: true, Doc: "where the result goes"},
		{Name: "requires_grad", Field: "RequiresGrad", Default: false, Doc: "whether the result collects its gradient"},
	}
	with := func(args ...Arg) []Arg { return append(args, options...) }
	size := Arg{Name: "size", Doc: "the shape"}
	like := Arg{Name: "input", Doc: "whose shape, and by default dtype and device, the result has"}
	o := TensorOptions{}
	fixed := T{Shape: []int{2, 3}, NoGrad: true}
	start, end := Arg{Name: "start", Doc: "the first number"}, Arg{Name: "end", Doc: "the last number"}
	steps := Arg{Name: "steps", Doc: "how many"}
	register("creation",
		Row{Name: "zeros", Func: ZerosWith, Args: with(size), NoGrad: constant, Doc: "A tensor of zeros.", Samples: []Sample{{Args: []any{[]int{2, 3}, o}}}},
		Row{Name: "ones", Func: OnesWith, Args: with(size), NoGrad: constant, Doc: "A tensor of ones.", Samples: []Sample{{Args: []any{[]int{2, 3}, o}}}},
		Row{Name: "full", Func: Full, Args: with(size, Arg{Name: "fill_value", Number: true, Doc: "a number"}), NoGrad: constant, Doc: "A tensor whose elements are all one number.",
			Samples: []Sample{{Args: []any{[]int{2, 3}, core.Num(1.5), o}}}},
		Row{Name: "empty", Func: EmptyWith, Args: with(size), NoGrad: constant, Doc: "A tensor whose elements are undefined until they are written.",
			Samples: []Sample{{Args: []any{[]int{0, 3}, o}}}},
		Row{Name: "zeros_like", Func: ZerosLike, Args: with(like), NoGrad: constant, Doc: "Zeros of a tensor's shape.", Samples: []Sample{{Args: []any{fixed, o}}}},
		Row{Name: "ones_like", Func: OnesLike, Args: with(like), NoGrad: constant, Doc: "Ones of a tensor's shape.", Samples: []Sample{{Args: []any{fixed, o}}}},
		Row{Name: "full_like", Func: FullLike, Args: with(like, Arg{Name: "fill_value", Number: true, Doc: "a number"}), NoGrad: constant,
			Doc: "A tensor of another's shape whose elements are all one number.", Samples: []Sample{{Args: []any{fixed, core.Num(1.5), o}}}},
		Row{Name: "empty_like", Func: EmptyLike, Args: with(like), NoGrad: constant, Doc: "A tensor of another's shape whose elements are undefined until they are written.",
			Samples: []Sample{{Args: []any{T{Shape: []int{0, 3}, NoGrad: true}, o}}}},
		Row{Name: "eye", Func: Eye, Args: with(Arg{Name: "n", Doc: "the number of rows"}, Arg{Name: "m", Default: -1, Doc: "of columns; -1: as many"}), NoGrad: constant,
			Doc: "A matrix with ones on the diagonal and zeros elsewhere.", Samples: []Sample{{Args: []any{3, -1, o}}, {Args: []any{2, 4, o}}, {Args: []any{0, 2, o}}}},
		Row{Name: "arange", Func: Arange, NoGrad: constant, Doc: "Numbers from start, a step apart, that lie before end.",
			Args: with(Arg{Name: "start", Default: 0, Optional: true, Number: true, Doc: "the first number"}, Arg{Name: "end", Number: true, Doc: "the number to stop before"},
				Arg{Name: "step", Default: 1, Optional: true, Number: true, Doc: "the distance of neighbours"}),
			Samples: []Sample{{Args: []any{core.IntNum(2), core.IntNum(7), nil, o}}, {Args: []any{core.Num(1), core.Num(0), core.Num(-0.3), o}}}},
		Row{Name: "linspace", Func: Linspace, Args: with(start, end, steps), NoGrad: constant, Doc: "The given number of evenly spaced numbers from start to end, both included.",
			Samples: []Sample{{Args: []any{0.0, 1.0, 5, o}}}},
		Row{Name: "logspace", Func: Logspace, Args: with(start, end, steps, Arg{Name: "base", Default: 10.0, Doc: "of the powers"}), NoGrad: constant,
			Doc: "base to the powers of the given number of evenly spaced numbers from start to end, both included.", Samples: []Sample{{Args: []any{0.0, 1.0, 5, 10.0, o}}}},
		Row{Name: "tril_indices", Func: TrilIndices, NoGrad: constant, Doc: "Rows and columns of the elements on and below a diagonal.",
			Args:    with(Arg{Name: "row", Doc: "the number of rows"}, Arg{Name: "col", Doc: "of columns"}, Arg{Name: "offset", Default: 0, Doc: "which diagonal"}),
			Samples: []Sample{{Args: []any{3, 4, 0, o}}}},
		Row{Name: "triu_indices", Func: TriuIndices, NoGrad: constant, Doc: "Rows and columns of the elements on and above a diagonal.",
			Args:    with(Arg{Name: "row", Doc: "the number of rows"}, Arg{Name: "col", Doc: "of columns"}, Arg{Name: "offset", Default: 0, Doc: "which diagonal"}),
			Samples: []Sample{{Args: []any{3, 4, 1, o}}}},
	)
}
