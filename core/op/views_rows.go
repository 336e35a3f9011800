package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// input is the argument that most operations have first.
var input = Arg{Name: "input"}

// inputAnd returns the arguments of an operation on one tensor.
func inputAnd(more ...Arg) []Arg { return append([]Arg{input}, more...) }

func init() {
	size := Arg{Name: "size", Doc: "the new shape"}
	dim := Arg{Name: "dim", Doc: "the dimension"}
	dim0 := Arg{Name: "dim", Default: 0, Doc: "the dimension"}
	other := Arg{Name: "other", Doc: "the tensor whose shape is taken"}
	shaped := func(args ...any) Sample { return Sample{Args: args} }

	register("views",
		Row{Name: "clone", Func: Clone, Args: inputAnd(), Memory: true, Doc: "A contiguous copy.",
			Samples: []Sample{shaped(Shaped(3, 4)), shaped(Shaped()), shaped(Shaped(2, 0, 3)), shaped(Shaped(2, 3, 2, 2))}},
		Row{Name: "contiguous", Func: Contiguous, Shares: true, Args: inputAnd(), Memory: true,
			Doc: "The tensor itself if its elements lie row-major without gaps, otherwise a copy that does.", Samples: []Sample{shaped(Shaped(3, 4))}},
		Row{Name: "reshape", Func: Reshape, Shares: true, Args: inputAnd(Arg{Name: "shape", Doc: "the new shape; one size may be -1"}), Memory: true,
			Doc:     "The same elements row-major in another shape: a view where the layout allows it.",
			Samples: []Sample{shaped(Shaped(3, 4), 2, 6), shaped(Shaped(3, 4), -1), shaped(Shaped(2, 3, 4), 3, -1, 2), shaped(Shaped(1)), shaped(Shaped(0, 3), 3, 0)}},
		Row{Name: "view", Func: View, Shares: true, Args: inputAnd(size), Memory: true, Doc: "The same elements row-major in another shape, always a view.",
			Samples: []Sample{shaped(Shaped(5), 5, 1), shaped(Shaped(3, 4), 3, 1, 4)}},
		Row{Name: "view_as", Func: ViewAs, Shares: true, Args: inputAnd(other), Memory: true, Doc: "A view in the shape of another tensor.",
			Samples: []Sample{shaped(Shaped(6), T{Shape: []int{6, 1}, NoGrad: true})}},
		Row{Name: "reshape_as", Func: ReshapeAs, Shares: true, Args: inputAnd(other), Memory: true, Doc: "The elements in the shape of another tensor.",
			Samples: []Sample{shaped(Shaped(6), T{Shape: []int{2, 3}, NoGrad: true})}},
		Row{Name: "flatten", Func: Flatten, Shares: true, Memory: true, Doc: "A range of dimensions joined to one.",
			Args:    inputAnd(Arg{Name: "start_dim", Default: 0, Doc: "the first"}, Arg{Name: "end_dim", Default: -1, Doc: "the last, included"}),
			Samples: []Sample{shaped(Shaped(2, 3, 4), 0, -1), shaped(Shaped(2, 3, 4), 1, 2), shaped(Shaped(), 0, -1)}},
		Row{Name: "ravel", Func: Ravel, Shares: true, Args: inputAnd(), Memory: true, Doc: "The elements in one dimension.", Samples: []Sample{shaped(Shaped(2, 3))}},
		Row{Name: "unflatten", Func: Unflatten, Shares: true, Args: inputAnd(dim, Arg{Name: "sizes", Doc: "what the dimension is split into; one may be -1"}), Memory: true,
			Doc: "A dimension split into several, whose sizes multiply to its own.", Samples: []Sample{shaped(Shaped(3, 8), 1, 2, -1), shaped(Shaped(6, 2), -2, 2, 3)}},
		Row{Name: "permute", Func: Permute, Shares: true, Args: inputAnd(Arg{Name: "dims", Doc: "the order of the dimensions"}), Memory: true,
			Doc: "A view with the dimensions in another order.", Samples: []Sample{shaped(Shaped(2, 3, 4), 2, 0, 1), shaped(Shaped())}},
		Row{Name: "transpose", Func: Transpose, Shares: true, Args: inputAnd(Arg{Name: "dim0"}, Arg{Name: "dim1"}), Memory: true,
			Doc: "A view with two dimensions swapped.", Samples: []Sample{shaped(Shaped(3, 4), 0, 1), shaped(Shaped(2, 3, 4), -1, 0)}},
		Row{Name: "swapaxes", Func: SwapAxes, Shares: true, Args: inputAnd(Arg{Name: "axis0"}, Arg{Name: "axis1"}), Memory: true,
			Doc: "A view with two dimensions swapped.", Samples: []Sample{shaped(Shaped(3, 4), 0, 1)}},
		Row{Name: "t", Func: TransposeMatrix, Shares: true, Args: inputAnd(), Memory: true, Doc: "A view of a matrix transposed.",
			Samples: []Sample{shaped(Shaped(3, 4)), shaped(Shaped(3)), shaped(Shaped())}},
		Row{Name: "mT", Func: MT, Shares: true, Args: inputAnd(), Memory: true, Doc: "A view with the last two dimensions swapped.", Samples: []Sample{shaped(Shaped(2, 3, 4))}},
		Row{Name: "movedim", Func: Movedim, Shares: true, Memory: true, Doc: "A view with dimensions moved to other places.",
			Args:    inputAnd(Arg{Name: "source", Doc: "the dimensions"}, Arg{Name: "destination", Doc: "their places"}),
			Samples: []Sample{shaped(Shaped(2, 3, 4), []int{0}, []int{2}), shaped(Shaped(2, 3, 4), []int{0, -1}, []int{1, 0})}},
		Row{Name: "expand", Func: Expand, Shares: true, Args: inputAnd(Arg{Name: "size", Doc: "the shape; -1 keeps a size"}), Memory: true,
			Doc:     "A view in which dimensions of size 1 repeat.",
			Samples: []Sample{shaped(Shaped(3, 1), 2, -1, 4), shaped(Shaped(), 3), shaped(Shaped(1, 2), 0, 2)}},
		Row{Name: "expand_as", Func: ExpandAs, Shares: true, Args: inputAnd(other), Memory: true, Doc: "A view expanded to the shape of another tensor.",
			Samples: []Sample{shaped(Shaped(3, 1), T{Shape: []int{3, 2}, NoGrad: true})}},
		Row{Name: "broadcast_to", Func: BroadcastTo, Shares: true, Args: inputAnd(size), Memory: true, Doc: "A view broadcast to a shape, in which dimensions of size 1 repeat.",
			Samples: []Sample{shaped(Shaped(3), 2, 3)}},
		Row{Name: "broadcast_tensors", Func: BroadcastTensors, Shares: true, Args: []Arg{{Name: "tensors"}}, Memory: true,
			Doc: "Views broadcast against one another.", Samples: []Sample{shaped(Shaped(3, 1), Shaped(4))}},
		Row{Name: "squeeze", Func: Squeeze, Shares: true, Args: inputAnd(Arg{Name: "dim", Optional: true, Doc: "the dimensions; all by default"}), Memory: true,
			Doc: "A view without dimensions of size 1.", Samples: []Sample{shaped(Shaped(1, 3, 1)), shaped(Shaped(1, 3, 1), 0), shaped(Shaped(2, 1), 0, 1)}},
		Row{Name: "unsqueeze", Func: Unsqueeze, Shares: true, Args: inputAnd(dim), Memory: true, Doc: "A view with a new dimension of size 1.",
			Samples: []Sample{shaped(Shaped(2, 3), 1), shaped(Shaped(2, 3), -1), shaped(Shaped(), 0)}},
		Row{Name: "atleast_1d", Func: AtLeast1D, Shares: true, Args: inputAnd(), Memory: true, Doc: "The tensor with at least one dimension.", Samples: []Sample{shaped(Shaped())}},
		Row{Name: "atleast_2d", Func: AtLeast2D, Shares: true, Args: inputAnd(), Memory: true, Doc: "The tensor with at least two dimensions.", Samples: []Sample{shaped(Shaped(3))}},
		Row{Name: "atleast_3d", Func: AtLeast3D, Shares: true, Args: inputAnd(), Memory: true, Doc: "The tensor with at least three dimensions.",
			Samples: []Sample{shaped(Shaped(3)), shaped(Shaped(3, 2))}},
	)
	register("slices",
		Row{Name: "narrow", Func: Narrow, Shares: true, Args: inputAnd(dim, Arg{Name: "start", Doc: "the first index"}, Arg{Name: "length", Doc: "how many"}), Memory: true,
			Doc: "A view of a range of indices of a dimension.", Samples: []Sample{shaped(Shaped(3, 5), 1, 1, 3), shaped(Shaped(4, 2), 0, -3, 0)}},
		Row{Name: "slice", Func: Slice, Shares: true, Memory: true, Doc: "A view of a slice of a dimension, as in Python, with a positive step.",
			Args: inputAnd(dim0, Arg{Name: "start", Default: 0, Doc: "the first index"}, Arg{Name: "end", Default: math.MaxInt, Doc: "the index to stop before"},
				Arg{Name: "step", Default: 1, Doc: "the distance of indices"}),
			Samples: []Sample{shaped(Shaped(7, 2), 0, 1, 6, 2), shaped(Shaped(2, 5), -1, -4, 100, 3), shaped(Shaped(3), 0, 2, 1, 1)}},
		Row{Name: "select", Func: Select, Shares: true, Args: inputAnd(dim, Arg{Name: "index"}), Memory: true, Doc: "A view at one index of a dimension, which it lacks.",
			Samples: []Sample{shaped(Shaped(3, 4), 0, 1), shaped(Shaped(3, 4), 1, -1), shaped(Shaped(3), 0, 2)}},
		Row{Name: "diagonal", Func: Diagonal, Shares: true, Memory: true, Doc: "A view of the diagonals of matrices.",
			Args: inputAnd(Arg{Name: "offset", Default: 0, Doc: "which diagonal"}, Arg{Name: "dim1", Default: 0, Doc: "of the rows"},
				Arg{Name: "dim2", Default: 1, Doc: "of the columns"}),
			Samples: []Sample{shaped(Shaped(3, 4), 0, 0, 1), shaped(Shaped(3, 2, 4), 1, 0, 2), shaped(Shaped(4, 3), -2, 0, 1), shaped(Shaped(2, 2), 5, 0, 1)}},
		Row{Name: "unfold", Func: Unfold, Shares: true, Args: inputAnd(Arg{Name: "dimension"}, Arg{Name: "size", Doc: "of a window"}, Arg{Name: "step", Doc: "from window to window"}),
			Memory: true, Doc: "A view of the sliding windows of a dimension.",
			Samples: []Sample{shaped(Shaped(7), 0, 3, 1), shaped(Shaped(2, 6, 2), 1, 2, 2), shaped(Shaped(8), 0, 3, 2), shaped(Shaped(5), 0, 0, 1)}},
		Row{Name: "as_strided", Func: AsStrided, Shares: true, Memory: true, Doc: "A view with the given shape, strides and offset.",
			Args: inputAnd(size, Arg{Name: "stride", Doc: "the strides, in elements"}, Arg{Name: "storage_offset", Default: 0, Doc: "relative to the tensor's"}),
			// What it returns depends on the layout, so that dtypes in different layouts do not compare.
			Samples: []Sample{{Args: []any{DistinctOf(9), []int{2, 3}, []int{3, 1}, 1}, DTypes: []core.DType{}},
				{Args: []any{DistinctOf(6), []int{3, 3}, []int{1, 1}, 0}, DTypes: []core.DType{}}}},
		Row{Name: "split", Func: Split, Shares: true, Args: inputAnd(Arg{Name: "split_size", Doc: "of a part"}, dim0), Memory: true,
			Doc: "Views of parts of equal size, the last one perhaps smaller.", Samples: []Sample{shaped(Shaped(5, 2), 2, 0), shaped(Shaped(2, 4), 4, 1)}},
		Row{Name: "split_with_sizes", Func: SplitSizes, Shares: true, Args: inputAnd(Arg{Name: "split_sizes", Doc: "of the parts"}, dim0), Memory: true,
			Doc: "Views of parts of the given sizes, which add up to the dimension's.", Samples: []Sample{shaped(Shaped(2, 5), []int{1, 0, 4}, 1)}},
		Row{Name: "chunk", Func: Chunk, Shares: true, Args: inputAnd(Arg{Name: "chunks", Doc: "at most how many"}, dim0), Memory: true,
			Doc: "Views of a number of equal parts.", Samples: []Sample{shaped(Shaped(5, 2), 3, 0)}},
		Row{Name: "tensor_split", Func: TensorSplit, Shares: true, Args: inputAnd(Arg{Name: "sections", Doc: "how many"}, dim0), Memory: true,
			Doc: "Views of a number of parts whose sizes differ by at most one.", Samples: []Sample{shaped(Shaped(5, 2), 3, 0)}},
		Row{Name: "tensor_split_at", Func: TensorSplitAt, Shares: true, Args: inputAnd(Arg{Name: "indices", Doc: "where to cut"}, dim0), Memory: true,
			Doc: "Views of the parts between the given indices.", Samples: []Sample{shaped(Shaped(6, 2), []int{1, -2}, 0)}},
		Row{Name: "unbind", Func: Unbind, Shares: true, Args: inputAnd(dim0), Memory: true, Doc: "Views at each index of a dimension.",
			Samples: []Sample{shaped(Shaped(3, 2), 0), shaped(Shaped(3, 2), 1)}},
	)
}
