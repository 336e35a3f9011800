package op

import "github.com/plait-ml/plait/core"

func init() {
	dim := Arg{Name: "dim", Doc: "the dimension"}
	index := Arg{Name: "index", Doc: "the indices, int64 or int32"}
	src := Arg{Name: "src", Doc: "the values"}
	source := Arg{Name: "source", Doc: "the values"}
	at := Indices([]int{2, 3}, 1, 0, 2, 2, 3, 1) // in dimension 1 of [3, 4]
	down := Indices([]int{4, 2}, 1, 0, 2, 2, 0, 1, 1, 1)
	distinct := Indices([]int{2, 3}, 1, 0, 2, 3, 2, 0)
	vector := Indices([]int{4}, 2, 0, 2, 1)
	once := Indices([]int{2}, 2, 0)
	one := 1
	indices := Arg{Name: "indices", Doc: "an index tensor or mask for each dimension; absent ones take it whole"}
	mask := Arg{Name: "mask", Doc: "bools that broadcast"}
	some := Mask([]int{3, 4}, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0)
	list := func(t ...T) []T { return t }
	var reductions []Sample
	for i, reduce := range []string{"prod", "mean", "amax", "amin"} {
		reductions = append(reductions,
			Sample{Name: reduce, Args: []any{DistinctOf(3, 2), 0, Indices([]int{4}, 2, 0, 2, 2), DistinctOf(4, 2), reduce, true}, Loose: 4},
			Sample{Name: reduce + " without self", Args: []any{Between(1, 2, 2, 3), 1, Indices([]int{2}, float64(i%3), 1), Between(3, 4, 2, 2), reduce, false}})
	}
	values := func(shape []int, v ...float64) T { return T{Shape: shape, Values: v, NoGrad: true} }
	register("indexing",
		Row{Name: "gather", Func: Gather, Args: inputAnd(dim, index), Memory: true, Doc: "The elements that indices name in one dimension.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 1, at}}, {Args: []any{Shaped(3, 4), 0, down}}, {Args: []any{Shaped(), 0, Indices([]int{}, 0)}},
				{Args: []any{Shaped(3), 0, Indices([]int{0})}}}},
		Row{Name: "take_along_dim", Func: TakeAlongDim, Args: inputAnd(Arg{Name: "indices"}, Arg{Name: "dim", Optional: true, Doc: "the dimension; none: flat"}),
			Memory: true, Doc: "The elements that indices name in one dimension; other dimensions broadcast.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), Indices([]int{1, 2}, 3, 0), &one}}, {Args: []any{Shaped(2, 2), Indices([]int{3}, 3, 0, 0), nil}}}},
		Row{Name: "scatter", Func: Scatter, InPlace: ScatterInPlace, Args: inputAnd(dim, index, Arg{Name: "src", Number: true, Doc: "the values, or a number"}), Memory: true,
			Doc: "Values written to where indices say in one dimension.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 1, distinct, Shaped(2, 3)}}, {Args: []any{Shaped(3, 4), 1, distinct, Shaped(3, 3)}},
				{Args: []any{Shaped(3, 4), 0, down, core.Num(0.5)}}, {Args: []any{Shaped(), 0, Indices([]int{}, 0), Shaped()}}}},
		Row{Name: "scatter_add", Func: ScatterAdd, InPlace: ScatterAddInPlace, Args: inputAnd(dim, index, src), Memory: true,
			Doc: "Values added to where indices say in one dimension.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 1, at, Shaped(2, 3)}}, {Args: []any{Shaped(3, 4), 0, down, Shaped(5, 3)}},
				{Args: []any{Shaped(3), 0, Indices([]int{5}, 1, 1, 1, 0, 1), Shaped(5)}}}},
		Row{Name: "scatter_reduce", Func: ScatterReduce, InPlace: ScatterReduceInPlace, Memory: true,
			Args: inputAnd(dim, index, src, Arg{Name: "reduce", Doc: "sum, prod, mean, amax or amin"},
				Arg{Name: "include_self", Default: true, Doc: "whether the elements of input take part"}),
			Doc: "Values combined with the elements that indices name in one dimension.", Samples: scatterReduceSamples()},
		Row{Name: "index_select", Func: IndexSelect, Args: inputAnd(dim, index), Memory: true, Doc: "The parts at the indices of a dimension.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 0, vector}}, {Args: []any{Shaped(2, 3, 2), 1, vector}}, {Args: []any{Shaped(2, 3), -1, Indices([]int{0})}},
				{Args: []any{Shaped(3), 0, Indices([]int{}, 1)}}}},
		Row{Name: "index_add", Func: IndexAddScaled, InPlace: IndexAddScaledInPlace, Args: inputAnd(dim, index, source, Arg{Name: "alpha", Default: 1.0, Doc: "a factor of the values"}),
			Memory: true, Doc: "Parts added to those at the indices of a dimension.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 0, vector, Shaped(4, 4), 1.0}}, {Args: []any{Shaped(2, 3, 2), 1, vector, Shaped(2, 4, 2), 0.5}}}},
		Row{Name: "index_copy", Func: IndexCopy, InPlace: IndexCopyInPlace, Args: inputAnd(dim, index, source), Memory: true,
			Doc:     "Parts at the indices of a dimension replaced.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 0, once, Shaped(2, 4)}}, {Args: []any{Shaped(2, 3), 1, once, Shaped(2, 2)}}}},
		Row{Name: "index_fill", Func: IndexFill, InPlace: IndexFillInPlace, Args: inputAnd(dim, index, Arg{Name: "value", Number: true, Doc: "a number or a 0-d tensor"}), Memory: true,
			Doc:     "Parts at the indices of a dimension set to a value.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 0, vector, core.Num(2)}}, {Args: []any{Shaped(2, 3), 1, Indices([]int{1}, -1), Shaped()}}}},
		Row{Name: "take", Func: Take, Args: inputAnd(index), Memory: true, Doc: "The elements at indices of the tensor as if it were flat.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), Indices([]int{2, 2}, 11, 0, -1, 5)}}}},
		Row{Name: "put_", InPlace: PutInPlace, Args: inputAnd(index, source, Arg{Name: "accumulate", Default: false, Doc: "whether values are added"}), Memory: true,
			Doc: "The tensor with elements at indices, as if it were flat, replaced."},
		Row{Name: "one_hot", Waits: true, Func: OneHot, NoGrad: "indices have no gradient", Memory: true, Doc: "A vector with a one for each index.",
			Args:    inputAnd(Arg{Name: "num_classes", Default: -1, Doc: "how long the vectors are; -1: as the largest index needs"}),
			Samples: []Sample{{Args: []any{vector, -1}}, {Args: []any{at, 5}}}},
		Row{Name: "put", Func: Put, Memory: true, Doc: "A copy with elements, taken as flat, replaced.",
			Args: inputAnd(Arg{Name: "index"}, Arg{Name: "source"}, Arg{Name: "accumulate", Default: false}),
			Samples: []Sample{{Args: []any{Shaped(3, 4), Indices([]int{2, 2}, 1, -1, 5, 0), Shaped(2, 2), false}},
				{Name: "accumulate", Args: []any{Shaped(3, 2), Indices([]int{3}, 1, 1, 5), Shaped(3), true}}}},
		Row{Name: "index_reduce", Func: IndexReduce, InPlace: IndexReduceInPlace, Doc: "Parts of a dimension combined with others.",
			Args: inputAnd(Arg{Name: "dim"}, Arg{Name: "index"}, Arg{Name: "source"}, Arg{Name: "reduce"}, Arg{Name: "include_self", Default: true}), Samples: reductions},
		Row{Name: "nonzero", Waits: true, Func: NonZero, Args: []Arg{input}, NoGrad: "the result is an index",
			Doc:     "The coordinates of the elements that are not zero.",
			Samples: []Sample{{Name: "matrix", Args: []any{values([]int{2, 3}, 0, 1, 0, -2, 0, 3)}}, {Name: "0-d", Args: []any{values(nil, 2)}}}},
	)
	register("indexing",
		Row{Name: "index", Waits: true, Func: IndexTensors, Args: inputAnd(indices), Memory: true, Doc: "The elements that index tensors and masks name.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), list(vector)}}, {Args: []any{Shaped(3, 4), list(vector, Indices([]int{2, 1}, 3, -1))}},
				{Args: []any{Shaped(3, 4, 2), list(some)}}, {Args: []any{Shaped(3, 2, 4), list(Indices([]int{}, 1))}}, {Args: []any{Shaped(3, 4), list(Mask([]int{3}, 0, 0, 0))}}}},
		Row{Name: "index_put", Waits: true, Func: IndexPut, InPlace: IndexPutInPlace, Memory: true, Doc: "Values written or added to the elements that index tensors and masks name.",
			Args: inputAnd(indices, Arg{Name: "values", Number: true, Doc: "a tensor that broadcasts, or a number"}, Arg{Name: "accumulate", Default: false, Doc: "whether values are added"}),
			Samples: []Sample{{Args: []any{Shaped(3, 4), list(once), Shaped(2, 4), false}}, {Args: []any{Shaped(3, 4), list(vector, Indices([]int{4}, 1, 0, 1, -1)), Shaped(4), true}},
				{Args: []any{Shaped(3, 4), list(some), Shaped(), false}}, {Args: []any{Shaped(3, 4), list(vector), Shaped(4, 1), true}}, {Args: []any{Shaped(3, 4), list(once), core.Num(1), false}}}},
		Row{Name: "masked_select", Waits: true, Func: MaskedSelect, Args: inputAnd(mask), Memory: true, Doc: "The elements where a mask is true.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), some}}, {Args: []any{Shaped(4), some}}, {Args: []any{Shaped(2, 3, 1), Mask([]int{1, 2}, 1, 0)}}, {Args: []any{Shaped(), Mask([]int{}, 1)}}}},
		Row{Name: "masked_scatter", Func: MaskedScatter, InPlace: MaskedScatterInPlace, Args: inputAnd(mask, source), Memory: true,
			Doc:     "The elements where a mask is true replaced, in order.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), some, Shaped(5)}}, {Args: []any{Shaped(3, 4), some, Shaped(4, 2)}}, {Args: []any{Shaped(3, 2), Mask([]int{2}, 0, 1), Shaped(3)}}}},
		Row{Name: "embedding", Func: Embedding, Memory: true, Doc: "The rows of a matrix at indices.",
			Args: []Arg{{Name: "input", Doc: "the indices"}, {Name: "weight", Doc: "the matrix"}, {Name: "padding_idx", Field: "PaddingIdx", Optional: true, Doc: "a row without gradient"},
				{Name: "scale_grad_by_freq", Field: "ScaleGradByFreq", Default: false, Doc: "whether gradients are divided by how often a row was used"},
				{Name: "sparse", Field: "Sparse", Default: false, Doc: "whether the gradient of the weight is a sparse tensor"}},
			Samples: []Sample{{Args: []any{vector, Shaped(3, 4), EmbeddingOptions{}}}, {Args: []any{Indices([]int{2, 2}, 0, 2, 2, 2), Shaped(3, 2), EmbeddingOptions{ScaleGradByFreq: false}}}}},
	)
}

func scatterReduceSamples() []Sample {
	index := Indices([]int{2, 5}, 1, 0, 2, 2, 1, 0, 0, 0, 3, 1)
	var out []Sample
	for _, reduce := range []string{"sum", "prod", "mean", "amax", "amin"} {
		for _, self := range []bool{true, false} {
			name := reduce
			if !self {
				name += " without self"
			}
			s := Sample{Name: name, Args: []any{DistinctOf(2, 4), 1, index, DistinctOf(2, 5), reduce, self}}
			if reduce == "prod" {
				s.Args = []any{Shaped(2, 4), 1, index, Shaped(2, 6), reduce, self}
			}
			out = append(out, s)
		}
	}
	zeros := T{Shape: []int{1, 5}, Values: []float64{0, 2, 0, 0, 3}}
	return append(out, Sample{Name: "prod of zeros", Args: []any{T{Shape: []int{1, 4}, Values: []float64{2, 0, 3, 0}}, 1,
		Indices([]int{1, 5}, 0, 0, 1, 2, 2), zeros, "prod", true}})
}
