package op

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
		Row{Name: "block_diag", Func: BlockDiag, Args: []Arg{{Name: "tensors"}}, Memory: true, Doc: "Matrices along the diagonal of one.",
			Samples: []Sample{{Args: []any{[]T{Shaped(2, 3), Shaped(2), Shaped(), Shaped(1, 2)}}}}},
		Row{Name: "combinations", Func: Combinations, Memory: true, Doc: "All choices of some elements of a vector.",
			Args:    inputAnd(Arg{Name: "r", Default: 2}, Arg{Name: "with_replacement", Default: false}),
			Samples: []Sample{{Args: []any{Shaped(4), 2, false}}, {Name: "replacement", Args: []any{Shaped(3), 3, true}}, {Name: "too few", Args: []any{Shaped(2), 3, false}}}},
	)
}
