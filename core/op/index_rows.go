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

	register("gathering",
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
	)
	indices := Arg{Name: "indices", Doc: "an index tensor or mask for each dimension; absent ones take it whole"}
	mask := Arg{Name: "mask", Doc: "bools that broadcast"}
	some := Mask([]int{3, 4}, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0)
	list := func(t ...T) []T { return t }
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
				{Name: "scale_grad_by_freq", Field: "ScaleGradByFreq", Default: false, Doc: "whether gradients are divided by how often a row was used"}},
			Samples: []Sample{{Args: []any{vector, Shaped(3, 4), EmbeddingOptions{}}}, {Args: []any{Indices([]int{2, 2}, 0, 2, 2, 2), Shaped(3, 2), EmbeddingOptions{ScaleGradByFreq: false}}}}},
	)

	dims := Arg{Name: "dims", Doc: "the dimensions"}
	k := Arg{Name: "k", Default: 1, Doc: "how many quarter turns"}
	diagonal := Arg{Name: "diagonal", Default: 0, Doc: "which diagonal"}
	zero := 0
	register("rearrangement",
		Row{Name: "flip", Func: Flip, Args: inputAnd(dims), Memory: true, Doc: "A copy with the elements in reverse order along dimensions.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), []int{0}}}, {Args: []any{Shaped(2, 3, 2), []int{-1, 0}}}, {Args: []any{Shaped(2), nil}}}},
		Row{Name: "fliplr", Func: Fliplr, Args: inputAnd(), Memory: true, Doc: "The columns in reverse order.", Samples: []Sample{{Args: []any{Shaped(2, 3)}}}},
		Row{Name: "flipud", Func: Flipud, Args: inputAnd(), Memory: true, Doc: "The rows in reverse order.", Samples: []Sample{{Args: []any{Shaped(3, 2)}}}},
		Row{Name: "rot90", Func: Rot90, Args: inputAnd(k, Arg{Name: "dims", Default: []int{0, 1}, Doc: "the plane"}), Memory: true, Doc: "The tensor turned k times by 90 degrees in the plane of two dimensions, from the first towards the second.",
			Samples: []Sample{{Args: []any{Shaped(2, 3), 1, []int{0, 1}}}, {Args: []any{Shaped(2, 3), 2, []int{0, 1}}}, {Args: []any{Shaped(2, 3), -1, []int{0, 1}}}, {Args: []any{Shaped(2, 3, 2), 4, []int{2, 0}}}}},
		Row{Name: "roll", Func: Roll, Args: inputAnd(Arg{Name: "shifts", Doc: "how far"}, Arg{Name: "dims", Optional: true, Doc: "the dimensions; none: flat"}), Memory: true,
			Doc:     "The elements moved along dimensions, past the end to the start.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), []int{1}, []int{0}}}, {Args: []any{Shaped(3, 4), []int{-1, 6}, []int{0, 1}}}, {Args: []any{Shaped(2, 3), []int{2}, nil}}, {Args: []any{Shaped(0, 2), []int{1}, []int{0}}}}},
		Row{Name: "repeat", Func: Repeat, Args: inputAnd(Arg{Name: "repeats", Doc: "how often, for each dimension"}), Memory: true, Doc: "The tensor repeated along its dimensions.",
			Samples: []Sample{{Args: []any{Shaped(2, 3), 2, 3}}, {Args: []any{Shaped(3), 2, 1, 2}}, {Args: []any{Shaped(), 3}}, {Args: []any{Shaped(2), 0}}}},
		Row{Name: "tile", Func: Tile, Args: inputAnd(Arg{Name: "dims", Doc: "how often, for the last dimensions"}), Memory: true, Doc: "The tensor repeated along its last dimensions.",
			Samples: []Sample{{Args: []any{Shaped(2, 3), 2}}}},
		Row{Name: "repeat_interleave", Waits: true, Func: RepeatInterleave, Memory: true, Doc: "Each part of a dimension repeated, next to one another.",
			Args:    inputAnd(Arg{Name: "repeats", Doc: "how often"}, Arg{Name: "dim", Optional: true, Doc: "the dimension; none: flat"}),
			Samples: []Sample{{Args: []any{Shaped(3, 2), Indices([]int{3}, 2, 0, 1), &zero}}, {Args: []any{Shaped(2, 2), Indices([]int{}, 2), nil}}, {Args: []any{Shaped(2, 2), Indices([]int{1}, 2), &one}}}},
		Row{Name: "tril", Func: Tril, InPlace: TrilInPlace, Args: inputAnd(diagonal), Memory: true, Doc: "The matrices in the last two dimensions with zeros above a diagonal; 0 is the main one, 1 the one above it.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 0}}, {Args: []any{Shaped(2, 3, 3), 1}}, {Args: []any{Shaped(4, 2), -9}}}},
		Row{Name: "triu", Func: Triu, InPlace: TriuInPlace, Args: inputAnd(diagonal), Memory: true, Doc: "The matrices in the last two dimensions with zeros below a diagonal; 0 is the main one, 1 the one above it.",
			Samples: []Sample{{Args: []any{Shaped(3, 4), 0}}, {Args: []any{Shaped(2, 3, 3), -1}}, {Args: []any{Shaped(4, 2), -9}}}},
		Row{Name: "diag", Func: Diag, Args: inputAnd(diagonal), Memory: true, Doc: "The matrix with a vector on a diagonal, or the diagonal of a matrix.",
			Samples: []Sample{{Args: []any{Shaped(3), 1}}, {Args: []any{Shaped(3, 4), -1}}}},
		Row{Name: "diag_embed", Func: DiagEmbed, Memory: true, Doc: "Matrices with the last dimension on a diagonal.",
			Args: inputAnd(Arg{Name: "offset", Default: 0, Doc: "which diagonal"}, Arg{Name: "dim1", Default: -2, Doc: "of the rows"},
				Arg{Name: "dim2", Default: -1, Doc: "of the columns"}),
			Samples: []Sample{{Args: []any{Shaped(2, 3), 0, -2, -1}}, {Args: []any{Shaped(2, 3), -1, 0, 2}}}},
		Row{Name: "one_hot", Waits: true, Func: OneHot, NoGrad: "indices have no gradient", Memory: true, Doc: "A vector with a one for each index.",
			Args:    inputAnd(Arg{Name: "num_classes", Default: -1, Doc: "how long the vectors are; -1: as the largest index needs"}),
			Samples: []Sample{{Args: []any{vector, -1}}, {Args: []any{at, 5}}}},
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
