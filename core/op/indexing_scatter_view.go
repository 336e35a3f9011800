package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// SelectScatter returns a copy of t in which what [Select] would return is src.
func SelectScatter(t, src *core.Tensor, dim, index int) *core.Tensor {
	if parts := distributed(t, src); parts != nil {
		return handOn(parts, "select_scatter", t, src, dim, index)
	}
	return scatterView("select_scatter", t, src, func(t *core.Tensor) *core.Tensor { return Select(t, dim, index) })
}

// SliceScatter returns a copy of t in which what [Slice] would return is src.
func SliceScatter(t, src *core.Tensor, dim, start, stop, step int) *core.Tensor {
	if parts := distributed(t, src); parts != nil {
		return handOn(parts, "slice_scatter", t, src, dim, start, stop, step)
	}
	return scatterView("slice_scatter", t, src, func(t *core.Tensor) *core.Tensor { return Slice(t, dim, start, stop, step) })
}

// DiagonalScatter returns a copy of t in which what [Diagonal] would return is src.
func DiagonalScatter(t, src *core.Tensor, offset, dim1, dim2 int) *core.Tensor {
	if parts := distributed(t, src); parts != nil {
		return handOn(parts, "diagonal_scatter", t, src, offset, dim1, dim2)
	}
	return scatterView("diagonal_scatter", t, src, func(t *core.Tensor) *core.Tensor { return Diagonal(t, offset, dim1, dim2) })
}

// scatterView returns a copy of t with src, of the view's shape, in the place of a view.
func scatterView(name string, t, src *core.Tensor, view func(t *core.Tensor) *core.Tensor) *core.Tensor {
	op := begin(name, &t)
	op.check(src.Usable(name))
	return op.compose(func() *core.Tensor {
		out := Clone(t)
		v := view(out)
		if op.check(v.Err()); op.err == nil && !slices.Equal(v.Shape(), src.Shape()) {
			op.failf(core.ShapeError, "the source has shape %v, want %v", src.Shape(), v.Shape())
		}
		if op.err == nil {
			op.check(CopyInPlace(v, src).Err())
		}
		return op.done(out)
	})
}

func init() {
	dim, src := Arg{Name: "dim", Default: 0, Doc: "the dimension"}, Arg{Name: "src", Doc: "of the part's shape"}
	register("indexing",
		Row{Name: "select_scatter", Func: SelectScatter, Memory: true, Doc: "A copy with one index of a dimension replaced.",
			Args: inputAnd(src, Arg{Name: "dim"}, Arg{Name: "index"}),
			Samples: []Sample{{Args: []any{Shaped(3, 4), Shaped(3), 1, 2}}, {Name: "from the end", Args: []any{Shaped(3, 2, 2), Shaped(2, 2), 0, -1}},
				{Name: "vector", Args: []any{Shaped(3), Shaped(), 0, 1}}}},
		Row{Name: "slice_scatter", Func: SliceScatter, Memory: true, Doc: "A copy with a slice of a dimension replaced.",
			Args: inputAnd(src, dim, Arg{Name: "start", Default: 0}, Arg{Name: "end", Default: 1 << 62}, Arg{Name: "step", Default: 1}),
			Samples: []Sample{{Args: []any{Shaped(5, 3), Shaped(2, 3), 0, 1, 5, 2}}, {Name: "nothing", Args: []any{Shaped(3, 2), Shaped(3, 0), 1, 1, 1, 1}},
				{Name: "from the end", Args: []any{Shaped(2, 4), Shaped(2, 2), 1, -2, 1 << 62, 1}}}},
		Row{Name: "diagonal_scatter", Func: DiagonalScatter, Memory: true, Doc: "A copy with a diagonal replaced.",
			Args: inputAnd(src, Arg{Name: "offset", Default: 0}, Arg{Name: "dim1", Default: 0}, Arg{Name: "dim2", Default: 1}),
			Samples: []Sample{{Args: []any{Shaped(3, 4), Shaped(3), 0, 0, 1}}, {Name: "below", Args: []any{Shaped(3, 3), Shaped(2), -1, 0, 1}},
				{Name: "stack", Args: []any{Shaped(3, 2, 3), Shaped(2, 2), 1, 0, 2}}}},
	)
}
