package op

func init() {
	one := 1
	dims := Arg{Name: "dims", Doc: "the dimensions"}
	k := Arg{Name: "k", Default: 1, Doc: "how many quarter turns"}
	diagonal := Arg{Name: "diagonal", Default: 0, Doc: "which diagonal"}
	zero := 0
	offset := Arg{Name: "offset", Default: 0, Doc: "which diagonal"}
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
		Row{Name: "diagflat", Func: DiagFlat, Args: inputAnd(offset), Memory: true, Doc: "The matrix with a tensor's elements on a diagonal.",
			Samples: []Sample{{Args: []any{Shaped(2, 2), 0}}, {Name: "above", Args: []any{Shaped(3), 1}}}},
	)
}
