package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// HSplit is [TensorSplit] into columns: along dimension 1, or 0 of a vector.
func HSplit(t *core.Tensor, sections int) []*core.Tensor {
	dim := 1
	if t.Err() == nil && t.Dim() == 1 {
		dim = 0
	}
	return evenSplit("hsplit", t, sections, dim, 1)
}

// VSplit is [TensorSplit] into rows: along dimension 0 of at least two dimensions.
func VSplit(t *core.Tensor, sections int) []*core.Tensor {
	return evenSplit("vsplit", t, sections, 0, 2)
}

// DSplit is [TensorSplit] along dimension 2 of at least three dimensions.
func DSplit(t *core.Tensor, sections int) []*core.Tensor {
	return evenSplit("dsplit", t, sections, 2, 3)
}

func evenSplit(name string, t *core.Tensor, sections, dim, least int) []*core.Tensor {
	a := beginView(name, t)
	switch {
	case a.err != nil:
	case t.Dim() < least:
		a.failf(core.ShapeError, "want at least %d dimensions, got shape %v", least, t.Shape())
	case sections < 1 || t.Size(dim)%sections != 0:
		a.failf(core.ValueError, "cannot cut dimension %d of shape %v into %d equal parts", dim, t.Shape(), sections)
	}
	if a.err != nil {
		return []*core.Tensor{a.fail()}
	}
	return TensorSplit(t, sections, dim)
}

// DiagFlat returns the matrix with the elements of x on the given diagonal and zeros elsewhere.
func DiagFlat(x *core.Tensor, offset int) *core.Tensor {
	return compose("diagflat", func() *core.Tensor { return Diag(Ravel(x), offset) })
}

// BlockDiag returns the matrix with the given matrices along its diagonal and zeros elsewhere. Vectors count as rows and 0-d
// tensors as matrices of one element.
func BlockDiag(tensors []*core.Tensor) *core.Tensor {
	a := beginAll("block_diag", tensors)
	if a.err == nil && len(tensors) == 0 {
		a.failf(core.ValueError, "got no tensors")
	}
	cols := 0
	for i, t := range tensors {
		if a.err == nil && (t.IsNumber() || t.Dim() > 2) {
			a.failf(core.ShapeError, "tensor %d is %v, want at most two dimensions", i, t)
		}
		if a.err == nil {
			cols += atLeastShape(t, 2)[1]
		}
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("block_diag", func() *core.Tensor {
		rows := make([]*core.Tensor, len(tensors))
		left := 0
		for i, t := range tensors {
			block := Reshape(t, atLeastShape(t, 2)...)
			rows[i] = Pad(block, []int{left, cols - left - block.Size(1)}, PadOptions{})
			left += block.Size(1)
		}
		return Cat(rows, 0)
	})
}

// atLeastShape returns t's shape with dimensions of size 1 in front, up to n of them in all.
func atLeastShape(t *core.Tensor, n int) []int {
	shape := t.Shape()
	for len(shape) < n {
		shape = append([]int{1}, shape...)
	}
	return shape
}

// Combinations returns all choices of r elements of a vector in the vector's order, one a row; with replacement, an element
// may be chosen more than once.
func Combinations(x *core.Tensor, r int, replacement bool) *core.Tensor {
	a := beginTensor("combinations", x)
	switch {
	case a.err != nil:
	case x.Dim() != 1:
		a.failf(core.ShapeError, "want a vector, got shape %v", x.Shape())
	case r < 0:
		a.failf(core.ValueError, "cannot choose %d elements", r)
	}
	if a.err != nil {
		return a.fail()
	}
	n := x.Numel()
	rows := choices(n, r, replacement)
	a.temp(core.Int64, rows, r) // as much as the indices take, which are counted with the device's memory
	if a.err != nil {
		return a.fail()
	}
	a.end()
	chosen := make([]int64, 0, rows*r)
	var pick []int64
	var choose func(from int)
	choose = func(from int) {
		if len(pick) == r {
			chosen = append(chosen, pick...)
			return
		}
		for i := from; i < n; i++ {
			pick = append(pick, int64(i))
			if replacement {
				choose(i)
			} else {
				choose(i + 1)
			}
			pick = pick[:len(pick)-1]
		}
	}
	if rows > 0 {
		choose(0)
	}
	return compose("combinations", func() *core.Tensor {
		index := ToDevice(core.FromSlice(chosen, len(chosen)), x.Device())
		return Reshape(IndexSelect(x, 0, index), rows, r)
	})
}

// choices returns in how many ways r of n elements can be chosen, r > 0, with or without replacement; the largest int if
// that is beyond it.
func choices(n, r int, replacement bool) int {
	if r > math.MaxInt-n {
		return math.MaxInt
	}
	if replacement {
		n += r - 1
	}
	if r == 0 || r > n {
		return 0
	}
	r = min(r, n-r)
	ways := 1
	for i := range r {
		if ways > math.MaxInt/(n-i) {
			return math.MaxInt
		}
		ways = ways * (n - i) / (i + 1)
	}
	return ways
}

// Vander returns the matrix whose columns are the powers of a vector, n of them, from the highest to 0 or, with increasing,
// from 0 on. With n < 0 there are as many as elements.
func Vander(x *core.Tensor, n int, increasing bool) *core.Tensor {
	a := beginTensor("vander", x)
	if a.err == nil && x.Dim() != 1 {
		a.failf(core.ShapeError, "want a vector, got shape %v", x.Shape())
	}
	if a.err != nil {
		return a.fail()
	}
	if n < 0 {
		n = x.Numel()
	}
	return compose("vander", func() *core.Tensor {
		if n == 0 {
			return Narrow(Clone(Reshape(x, x.Numel(), 1)), 1, 0, 0)
		}
		column := Reshape(x, x.Numel(), 1)
		one := OnesLike(column, TensorOptions{})
		powers := CumProd(Cat([]*core.Tensor{one, Expand(column, x.Numel(), n-1)}, 1), 1)
		if !increasing {
			powers = Fliplr(powers)
		}
		return powers
	})
}

// Put returns x with src written to, or with accumulate added to, its elements, taken as flat, at the indices; see
// [PutInPlace].
func Put(x, index, src *core.Tensor, accumulate bool) *core.Tensor {
	a := beginGiven("put", x, index, src)
	if a.err != nil {
		return a.fail()
	}
	return compose("put", func() *core.Tensor { return PutInPlace(Clone(x), index, src, accumulate) })
}

// IndexReduce returns x with the parts of src along dim combined with those that the indices, a vector, name: their "prod",
// "mean", "amax" or "amin". With includeSelf the parts of x take part; see [ScatterReduce].
func IndexReduce(x *core.Tensor, dim int, index, src *core.Tensor, reduce string, includeSelf bool) *core.Tensor {
	a := beginGiven("index_reduce", x, index, src)
	if a.err == nil && scalar(x) && scalar(src) {
		return compose("index_reduce", func() *core.Tensor {
			return Reshape(IndexReduce(atLeast(x, 1), dim, atLeast(index, 1), atLeast(src, 1), reduce, includeSelf))
		})
	}
	dim = a.dim(dim, x)
	switch {
	case a.err != nil:
	case reduce == "sum":
		a.failf(core.ValueError, "unknown reduction %q, want prod, mean, amax or amin", reduce)
	case x.Dim() == 0 || src.Dim() != x.Dim():
		a.failf(core.ShapeError, "got %s, want as many dimensions", shapes(x, src))
	case index.Dim() != 1 || index.Numel() != src.Size(dim):
		a.failf(core.ShapeError, "got indices of shape %v, want [%d] for a source of shape %v", index.Shape(), src.Size(dim), src.Shape())
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("index_reduce", func() *core.Tensor {
		shape := make([]int, src.Dim())
		for i := range shape {
			shape[i] = 1
		}
		shape[dim] = index.Numel()
		return ScatterReduce(x, dim, Expand(Reshape(index, shape...), src.Shape()...), src, reduce, includeSelf)
	})
}

// IndexReduceInPlace changes x as [IndexReduce] does and returns it.
func IndexReduceInPlace(x *core.Tensor, dim int, index, src *core.Tensor, reduce string, includeSelf bool) *core.Tensor {
	a := beginGiven("index_reduce_", x, index, src)
	a.inPlace(x)
	if a.err != nil {
		return a.fail()
	}
	old := a.own(Clone(x)) // the derivative needs the value that is overwritten
	r := a.own(IndexReduce(old, dim, index, src, reduce, includeSelf))
	return a.done(CopyInPlace(x, r))
}

func init() {
	sections := Arg{Name: "sections"}
	offset := Arg{Name: "offset", Default: 0, Doc: "which diagonal"}
	var reductions []Sample
	for i, reduce := range []string{"prod", "mean", "amax", "amin"} {
		reductions = append(reductions,
			Sample{Name: reduce, Args: []any{DistinctOf(3, 2), 0, Indices([]int{4}, 2, 0, 2, 2), DistinctOf(4, 2), reduce, true}, Loose: 4},
			Sample{Name: reduce + " without self", Args: []any{Between(1, 2, 2, 3), 1, Indices([]int{2}, float64(i%3), 1), Between(3, 4, 2, 2), reduce, false}})
	}
	register("assembly",
		Row{Name: "hsplit", Func: HSplit, Shares: true, Args: inputAnd(sections), Memory: true, Doc: "Equal parts along the second dimension, the only one of a vector; fails if its size is no multiple of sections.",
			Samples: []Sample{{Args: []any{Shaped(2, 4), 2}}, {Name: "vector", Args: []any{Shaped(6), 3}}}},
		Row{Name: "vsplit", Func: VSplit, Shares: true, Args: inputAnd(sections), Memory: true, Doc: "Equal parts along the first of at least two dimensions; fails if its size is no multiple of sections.",
			Samples: []Sample{{Args: []any{Shaped(4, 2), 2}}}},
		Row{Name: "dsplit", Func: DSplit, Shares: true, Args: inputAnd(sections), Memory: true, Doc: "Equal parts along the third dimension; fails if its size is no multiple of sections.",
			Samples: []Sample{{Args: []any{Shaped(2, 1, 4), 2}}}},
		Row{Name: "diagflat", Func: DiagFlat, Args: inputAnd(offset), Memory: true, Doc: "The matrix with a tensor's elements on a diagonal.",
			Samples: []Sample{{Args: []any{Shaped(2, 2), 0}}, {Name: "above", Args: []any{Shaped(3), 1}}}},
		Row{Name: "block_diag", Func: BlockDiag, Args: []Arg{{Name: "tensors"}}, Memory: true, Doc: "Matrices along the diagonal of one.",
			Samples: []Sample{{Args: []any{[]T{Shaped(2, 3), Shaped(2), Shaped(), Shaped(1, 2)}}}}},
		Row{Name: "combinations", Func: Combinations, Memory: true, Doc: "All choices of some elements of a vector.",
			Args:    inputAnd(Arg{Name: "r", Default: 2}, Arg{Name: "with_replacement", Default: false}),
			Samples: []Sample{{Args: []any{Shaped(4), 2, false}}, {Name: "replacement", Args: []any{Shaped(3), 3, true}}, {Name: "too few", Args: []any{Shaped(2), 3, false}}}},
		Row{Name: "vander", Func: Vander, Args: []Arg{{Name: "x"}, {Name: "N", Default: -1}, {Name: "increasing", Default: false}}, Doc: "The powers of a vector's elements.",
			Samples: []Sample{{Loose: 4, Args: []any{Shaped(3), -1, false}}, {Name: "increasing", Loose: 4, Args: []any{Shaped(2), 4, true}}, {Name: "none", Args: []any{Shaped(3), 0, true}}}},
		Row{Name: "put", Func: Put, Memory: true, Doc: "A copy with elements, taken as flat, replaced.",
			Args: inputAnd(Arg{Name: "index"}, Arg{Name: "source"}, Arg{Name: "accumulate", Default: false}),
			Samples: []Sample{{Args: []any{Shaped(3, 4), Indices([]int{2, 2}, 1, -1, 5, 0), Shaped(2, 2), false}},
				{Name: "accumulate", Args: []any{Shaped(3, 2), Indices([]int{3}, 1, 1, 5), Shaped(3), true}}}},
		Row{Name: "index_reduce", Func: IndexReduce, InPlace: IndexReduceInPlace, Doc: "Parts of a dimension combined with others.",
			Args: inputAnd(Arg{Name: "dim"}, Arg{Name: "index"}, Arg{Name: "source"}, Arg{Name: "reduce"}, Arg{Name: "include_self", Default: true}), Samples: reductions},
	)
}
