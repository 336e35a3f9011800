package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// Meshgrid returns, for vectors x, y, ..., tensors of shape [len(x), len(y), ...] that hold the coordinates of a grid:
// views in which vector i runs along dimension i. With indexing "xy" instead of "ij" the first two dimensions are
// swapped.
func Meshgrid(tensors []*core.Tensor, indexing string) []*core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOnList(parts, "meshgrid", tensors, indexing)
	}
	op := begin("meshgrid").list(&tensors)
	if op.err == nil && len(tensors) == 0 {
		op.failf(core.ValueError, "got no tensors")
	}
	if indexing != "ij" && indexing != "xy" {
		op.failf(core.ValueError, "unknown indexing %q, want \"ij\" or \"xy\"", indexing)
	}
	shape := make([]int, len(tensors))
	for i, t := range tensors {
		if op.err == nil && (t.IsNumber() || t.Dim() > 1) {
			op.failf(core.ShapeError, "tensor %d has shape %v, want a vector", i, t.Shape())
		}
		if op.err == nil {
			shape[i] = t.Numel()
		}
	}
	if op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	out := make([]*core.Tensor, len(tensors))
	for i, t := range tensors {
		out[i] = compose("meshgrid", func() *core.Tensor {
			line := make([]int, len(tensors))
			for j := range line {
				line[j] = 1
			}
			line[i] = shape[i]
			grid := Expand(Reshape(t, line...), shape...)
			if indexing == "xy" && len(tensors) > 1 {
				grid = Transpose(grid, 0, 1)
			}
			return grid
		})
	}
	return out
}

// CartesianProd returns the combinations of elements of the vectors, one in each row, the last vector's fastest; for one
// vector, that vector.
func CartesianProd(tensors ...*core.Tensor) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "cartesian_prod", tensors)
	}
	if len(tensors) == 1 {
		return Reshape(tensors[0], -1)
	}
	return compose("cartesian_prod", func() *core.Tensor {
		grids := Meshgrid(tensors, "ij")
		for i, g := range grids {
			grids[i] = Ravel(g)
		}
		return Stack(grids, 1)
	})
}

// Combinations returns all choices of r elements of a vector in the vector's order, one a row; with replacement, an element
// may be chosen more than once.
func Combinations(x *core.Tensor, r int, replacement bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "combinations", x, r, replacement)
	}
	op := begin("combinations", &x)
	switch {
	case op.err != nil:
	case x.Dim() != 1:
		op.failf(core.ShapeError, "want a vector, got shape %v", x.Shape())
	case r < 0:
		op.failf(core.ValueError, "cannot choose %d elements", r)
	}
	if op.err != nil {
		return op.fail()
	}
	n := x.Numel()
	rows := choices(n, r, replacement)
	op.temp(core.Int64, rows, r) // as much as the indices take, which are counted with the device's memory
	if op.err != nil {
		return op.fail()
	}
	op.end()
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
	return op.compose(func() *core.Tensor {
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
