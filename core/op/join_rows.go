package op

import "github.com/plait-ml/plait/core"

func init() {
	list := func(tensors ...T) []T { return tensors }
	tensors := Arg{Name: "tensors", Doc: "what is joined"}
	dim0 := Arg{Name: "dim", Default: 0, Doc: "the dimension"}

	register("joining",
		Row{Name: "cat", Func: Cat, Args: []Arg{tensors, dim0}, Memory: true, Doc: "The tensors joined along a dimension.",
			Samples: []Sample{{Args: []any{list(Shaped(2, 3), Shaped(4, 3)), 0}}, {Args: []any{list(Shaped(2, 1), Shaped(2, 3), Shaped(2, 0)), -1}},
				{Args: []any{list(Shaped(0), Shaped(2, 3)), 0}}, {Args: []any{list(Shaped(3)), 0}}}},
		Row{Name: "stack", Func: Stack, Args: []Arg{tensors, dim0}, Memory: true, Doc: "The tensors joined along a new dimension.",
			Samples: []Sample{{Args: []any{list(Shaped(2, 3), Shaped(2, 3)), 1}}, {Args: []any{list(Shaped(), Shaped(), Shaped()), 0}},
				{Args: []any{list(Shaped(2, 3)), -1}}}},
		Row{Name: "hstack", Func: Hstack, Args: []Arg{tensors}, Memory: true, Doc: "The tensors joined side by side.",
			Samples: []Sample{{Args: []any{list(Shaped(2), Shaped(3))}}, {Args: []any{list(Shaped(2, 1), Shaped(2, 2))}}, {Args: []any{list(Shaped(), Shaped(1))}}}},
		Row{Name: "vstack", Func: Vstack, Args: []Arg{tensors}, Memory: true, Doc: "The tensors, vectors as rows, joined on top of each other.",
			Samples: []Sample{{Args: []any{list(Shaped(3), Shaped(3))}}, {Args: []any{list(Shaped(2, 3), Shaped(3))}}}},
		Row{Name: "dstack", Func: Dstack, Args: []Arg{tensors}, Memory: true, Doc: "The tensors joined along the third dimension.",
			Samples: []Sample{{Args: []any{list(Shaped(2, 3), Shaped(2, 3))}}, {Args: []any{list(Shaped(3), Shaped(3))}}}},
		Row{Name: "column_stack", Func: ColumnStack, Args: []Arg{tensors}, Memory: true, Doc: "The tensors, vectors as columns, joined side by side.",
			Samples: []Sample{{Args: []any{list(Shaped(3), Shaped(3, 2))}}}},
		Row{Name: "meshgrid", Func: Meshgrid, Shares: true, Memory: true, Doc: "Views that hold the coordinates of a grid.",
			Args:    []Arg{{Name: "tensors", Doc: "vectors"}, {Name: "indexing", Default: "ij", Doc: "ij, or xy for the first two dimensions swapped"}},
			Samples: []Sample{{Args: []any{list(Shaped(2), Shaped(3), Shaped()), "ij"}}, {Args: []any{list(Shaped(2), Shaped(3)), "xy"}}}},
		Row{Name: "cartesian_prod", Func: CartesianProd, Shares: true, Args: []Arg{{Name: "tensors", Doc: "vectors"}}, Memory: true,
			Doc: "The combinations of elements of vectors.", Samples: []Sample{{Args: []any{Shaped(2), Shaped(3)}}, {Args: []any{Shaped(3)}}}},
	)

	src := Arg{Name: "src", Doc: "the values"}
	register("copying",
		Row{Name: "to", Func: To, Shares: true, Args: inputAnd(Arg{Name: "dtype"}), Memory: true, Doc: "The tensor converted to a dtype.",
			Samples: []Sample{{Args: []any{Shaped(3, 2), core.Float64}}}},
		Row{Name: "copy_", InPlace: CopyInPlace, Args: inputAnd(src), Memory: true, Doc: "The tensor with its elements set to those of another, broadcast and converted."},
		Row{Name: "fill_", InPlace: FillInPlace, Args: inputAnd(Arg{Name: "value", Number: true, Doc: "a number or a 0-d tensor"}), Memory: true,
			Doc: "The tensor with every element set to a value."},
		Row{Name: "zero_", InPlace: ZeroInPlace, Args: inputAnd(), Memory: true, Doc: "The tensor with every element set to zero."},
	)

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
