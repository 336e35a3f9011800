package op_test

import (
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// unravel returns the index of the i-th element of a shape, counted row-major.
func unravel(i int, shape []int) []int {
	at := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d] = i % shape[d]
		i /= shape[d]
	}
	return at
}

func ravel(at, shape []int) int {
	i := 0
	for d, n := range shape {
		i = i*n + at[d]
	}
	return i
}

// A reference is what an index should take: its shape and, row-major, the elements of a tensor with the given shape.
type reference struct {
	shape    []int
	elements []int
}

// axis is a dimension of the tensor after integers, slices and new dimensions: a range of one dimension of the tensor,
// or part of an index tensor or mask.
type axis struct {
	dim, start, step, n int
	tuple               [][]int // of an index tensor or mask: for each place of its shape the indices of its dimensions
	shape, dims         []int   // its shape, and the dimensions it indexes
}

func (a axis) indexed() bool { return a.dims != nil }

// take works out an index by its definition, one element at a time. It returns an error text if it should fail.
func take(t *testing.T, shape []int, indices []core.Index) (reference, string) {
	t.Helper()
	spoken := 0
	for _, i := range indices {
		switch i.Kind {
		case core.IndexSlice, core.IndexInteger:
			spoken++
		case core.IndexTensor:
			spoken++
			if i.Tensor.DType() == core.Bool {
				spoken += i.Tensor.Dim() - 1
			}
		}
	}
	if spoken > len(shape) {
		return reference{}, "too many indices"
	}
	full := slices.Clone(indices)
	if !slices.ContainsFunc(full, func(i core.Index) bool { return i.Kind == core.IndexEllipsis }) {
		full = append(full, core.Ellipsis())
	}
	fixed, outside := map[int]int{}, false
	var axes []axis
	dim := 0
	for _, i := range full {
		switch i.Kind {
		case core.IndexEllipsis:
			for range len(shape) - spoken {
				axes = append(axes, axis{dim: dim, step: 1, n: shape[dim]})
				dim++
			}
		case core.IndexNewAxis:
			axes = append(axes, axis{dim: -1, n: 1})
		case core.IndexInteger:
			at := i.Start
			if at < 0 {
				at += shape[dim]
			}
			if at < 0 || at >= shape[dim] {
				return reference{}, "out of range"
			}
			fixed[dim] = at
			dim++
		case core.IndexSlice:
			a := axis{dim: dim, step: i.Step, start: -1}
			for k := range shape[dim] { // in Python: range(n)[start:stop:step]
				low, high := i.Start, i.Stop
				if low < 0 {
					low = max(low+shape[dim], 0)
				}
				if high < 0 {
					high += shape[dim]
				}
				if k >= low && k < high && (k-low)%i.Step == 0 {
					if a.start < 0 {
						a.start = k
					}
					a.n++
				}
			}
			axes = append(axes, a)
			dim++
		case core.IndexTensor:
			if i.Tensor.Dim() == 0 && i.Tensor.DType() != core.Bool { // as an integer
				at := int(values(t, i.Tensor)[0])
				if at < 0 {
					at += shape[dim]
				}
				if at < 0 || at >= shape[dim] {
					return reference{}, "out of range"
				}
				fixed[dim] = at
				dim++
				break
			}
			a := axis{dim: dim, shape: i.Tensor.Shape()}
			v := values(t, i.Tensor)
			if i.Tensor.DType() != core.Bool {
				a.dims = []int{dim}
				for _, x := range v {
					k := int(x)
					if k < 0 {
						k += shape[dim]
					}
					outside = outside || k < 0 || k >= shape[dim]
					a.tuple = append(a.tuple, []int{k})
				}
				dim++
			} else {
				for d, n := range i.Tensor.Shape() {
					if shape[dim+d] != n {
						return reference{}, "does not fit"
					}
					a.dims = append(a.dims, dim+d)
				}
				for k, x := range v {
					if x != 0 {
						a.tuple = append(a.tuple, unravel(k, i.Tensor.Shape()))
					}
				}
				dim += i.Tensor.Dim()
				a.shape = []int{len(a.tuple)}
			}
			axes = append(axes, a)
		}
	}
	// Where the dimensions of the index tensors go, and their common shape.
	var plain []axis
	common, at, neighbours := []int{}, -1, true
	for i, a := range axes {
		if !a.indexed() {
			plain = append(plain, a)
			continue
		}
		if at >= 0 && !axes[i-1].indexed() {
			neighbours = false
		}
		if at < 0 {
			at = i
		}
		s, err := core.Broadcast("index", common, a.shape)
		if err != nil {
			return reference{}, "do not broadcast"
		}
		common = s
	}
	if outside && core.Numel(common) > 0 { // what is broadcast to nothing is not used
		return reference{}, "out of range"
	}
	if at < 0 || !neighbours {
		at = 0
	}
	r := reference{}
	for _, a := range plain[:at] {
		r.shape = append(r.shape, a.n)
	}
	r.shape = append(r.shape, common...)
	for _, a := range plain[at:] {
		r.shape = append(r.shape, a.n)
	}
	r.shape = nonNil(r.shape)
	for i := range core.Numel(r.shape) {
		out := unravel(i, r.shape)
		from := make([]int, len(shape))
		for d, k := range fixed {
			from[d] = k
		}
		tuple := out[at : at+len(common)]
		rest := append(slices.Clone(out[:at]), out[at+len(common):]...)
		for k, a := range plain {
			if a.dim >= 0 {
				from[a.dim] = a.start + rest[k]*a.step
			}
		}
		for _, a := range axes {
			if !a.indexed() {
				continue
			}
			lead := len(common) - len(a.shape)
			own := make([]int, len(a.shape))
			for d, n := range a.shape {
				if n > 1 {
					own[d] = tuple[lead+d]
				}
			}
			for d, k := range a.tuple[ravel(own, a.shape)] {
				from[a.dims[d]] = k
			}
		}
		r.elements = append(r.elements, ravel(from, shape))
	}
	return r, ""
}

func nonNil(s []int) []int {
	if s == nil {
		return []int{}
	}
	return s
}

// randomIndices makes an index for a shape from a source of small numbers.
func randomIndices(shape []int, next func(n int) int) []core.Index {
	var out []core.Index
	dim, ellipsis := 0, false
	for dim < len(shape) && len(out) < 6 {
		n := shape[dim]
		switch kind := next(12); {
		case kind < 2 && n > 0:
			out = append(out, core.At(next(2*n)-n))
			dim++
		case kind < 5:
			out = append(out, core.Span(next(2*n+5)-n-2, next(2*n+5)-n-2).By(1+next(3)))
			dim++
		case kind == 5:
			out = append(out, core.All())
			dim++
		case kind == 6:
			out = append(out, core.NewAxis())
		case kind == 7 && !ellipsis:
			out = append(out, core.Ellipsis())
			ellipsis = true
			dim += next(len(shape) - dim + 1)
		case kind < 10 && n > 0:
			size := [][]int{{}, {3}, {1}, {2, 3}, {2, 1}, {0}}[next(6)]
			v := make([]int64, core.Numel(size))
			for i := range v {
				v[i] = int64(next(2*n) - n)
			}
			out = append(out, core.Pick(int64s(size, v...)))
			dim++
		case kind >= 10:
			dims := 1 + next(min(2, len(shape)-dim))
			size := shape[dim : dim+dims]
			v := make([]bool, core.Numel(size))
			for i := range v {
				v[i] = next(3) == 0
			}
			out = append(out, core.Pick(bools(size, v...)))
			dim += dims
		}
		if next(9) == 0 {
			break
		}
	}
	return out
}

func requireIndexAgrees(t *testing.T, shape []int, indices []core.Index, l layout) {
	t.Helper()
	want, failure := take(t, shape, indices)
	numbers := make([]float64, core.Numel(shape))
	for i := range numbers {
		numbers[i] = float64(i)
	}
	x := place(numbers, core.Float64, shape, l)
	got := op.Index(x, indices...)
	err := got.Err()
	if err == nil {
		err = got.Wait()
	}
	if failure != "" {
		require.Error(t, err, "%v of %v: %s", indices, shape, failure)
		return
	}
	require.NoError(t, err, "%v of %v", indices, shape)
	require.Equal(t, want.shape, nonNil(got.Shape()), "%v of %v", indices, shape)
	for i, v := range values(t, got) {
		require.Equal(t, float64(want.elements[i]), v, "%v of %v, element %d", indices, shape, i)
	}
	// Writing: the values of the places, in order, the last one staying.
	fresh := make([]float64, len(want.elements))
	for i := range fresh {
		fresh[i] = -1 - float64(i)
		numbers[want.elements[i]] = fresh[i]
	}
	r := op.IndexSet(x, op.Reshape(core.FromSlice(fresh), want.shape...), indices...)
	require.NoError(t, r.Err(), "%v of %v", indices, shape)
	require.Equal(t, numbers, values(t, x), "%v of %v", indices, shape)
	for _, i := range want.elements {
		numbers[i] = 5
	}
	require.NoError(t, op.IndexSet(x, core.Num(5), indices...).Err(), "%v of %v", indices, shape)
	require.Equal(t, numbers, values(t, x), "%v of %v", indices, shape)
}
