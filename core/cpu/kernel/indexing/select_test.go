package indexing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
)

// selections are index tensors for the first dimensions of a tensor.
var selections = []struct {
	shape   []int   // of the indexed tensor
	tuples  []int   // the shape that the index tensors broadcast to
	indices [][]int // the shape of each index tensor
}{
	{[]int{7}, []int{5}, [][]int{{5}}},
	{[]int{7, 4}, []int{2, 3}, [][]int{{2, 3}}},
	{[]int{7, 4, 3}, []int{2, 3}, [][]int{{2, 1}, {3}}},
	{[]int{7, 4, 3}, []int{}, [][]int{{}}},
	{[]int{3, 4, 5}, []int{6}, [][]int{{6}, {1}, {}}},
	{[]int{7, 2, 3, 4}, []int{9}, [][]int{{9}}},
	{[]int{7, 0}, []int{3}, [][]int{{3}}},
	{[]int{7, 3}, []int{0}, [][]int{{0}}},
	{[]int{40, 600}, []int{300}, [][]int{{300}}},
	{[]int{50, 40}, []int{70, 300}, [][]int{{70, 1}, {300}}},
	{[]int{5, 30, 4}, []int{3000}, [][]int{{3000}}},
}

// tupleOf returns the index tuple at a position of the broadcast shape.
func tupleOf(indices []*rawtensor.Tensor, sizes, at []int) []int {
	out := make([]int, len(indices))
	for i, x := range indices {
		out[i] = int(x.Int(at...))
		if out[i] < 0 {
			out[i] += sizes[i]
		}
	}
	return out
}

func TestSelect(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, c := range selections {
		for _, dtype := range rawtensor.DTypes {
			for range 3 {
				if skipped(append(slices.Clone(c.tuples), c.shape[len(c.indices):]...), dtype, 0) {
					continue
				}
				in := layout(t, rng, dtype, c.shape).Random(rng)
				var indices []*rawtensor.Tensor
				var views []view
				for i, shape := range c.indices {
					x := randomIndex(t, rng, shape, -c.shape[i], c.shape[i]).Expand(c.tuples...)
					indices, views = append(indices, x), append(views, *viewOf(x))
				}
				shape := append(slices.Clone(c.tuples), c.shape[len(indices):]...)
				want := rawtensor.New(t, dtype, shape...).Fill(func(at []int) float64 {
					from := append(tupleOf(indices, c.shape, at[:len(c.tuples)]), at[len(c.tuples):]...)
					return in.Value(from...)
				})
				for _, p := range pools(t) {
					out := layout(t, rng, dtype, shape)
					var b bad
					require.True(t, selectAt(p.Ptr(), viewOf(out), viewOf(in), views, true, scratch(t, 8*rawtensor.Numel(c.tuples)), &b))
					requireSame(t, want, out, fmt.Sprint("select ", c, rawtensor.Name(dtype)))
				}
			}
		}
	}
}

func TestPut(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, c := range selections {
		for _, dtype := range rawtensor.DTypes {
			for _, mode := range modes {
				if skipped(append(slices.Clone(c.tuples), c.shape[len(c.indices):]...), dtype, mode) {
					continue
				}
				self := layout(t, rng, dtype, c.shape).Random(rng)
				var indices []*rawtensor.Tensor
				var views []view
				for i, shape := range c.indices {
					x := randomIndex(t, rng, shape, -c.shape[i], c.shape[i]).Expand(c.tuples...)
					indices, views = append(indices, x), append(views, *viewOf(x))
				}
				shape := append(slices.Clone(c.tuples), c.shape[len(indices):]...)
				values := layout(t, rng, dtype, shape).Random(rng)
				if rng.IntN(4) == 0 {
					values = rawtensor.New(t, dtype).Random(rng).Expand(shape...)
				}
				if mode == multiply && dtype == rawtensor.Int64 { // past 2^53 the float64 reference is not exact
					values.Each(func(at []int) { values.Set(math.Copysign(1, values.Value(at...)), at...) })
				}
				wide := dtype // 16-bit floats are combined in float32 and rounded once
				if mode != assign && (dtype == rawtensor.Float16 || dtype == rawtensor.BFloat16) {
					wide = rawtensor.Float32
				}
				sum := rawtensor.New(t, wide, c.shape...).Fill(func(at []int) float64 { return self.Value(at...) })
				values.Each(func(at []int) {
					to := append(tupleOf(indices, c.shape, at[:len(c.tuples)]), at[len(c.tuples):]...)
					sum.Set(combine(mode, wide, sum.Value(to...), values.Value(at...)), to...)
				})
				want := rawtensor.New(t, dtype, c.shape...).Fill(func(at []int) float64 { return sum.Value(at...) })
				for _, p := range pools(t) {
					out := layout(t, rng, dtype, c.shape).Fill(func(at []int) float64 { return self.Value(at...) })
					var b bad
					bytes := rawtensor.Numel(c.tuples) * putScratch(dtype, mode)
					require.True(t, put(p.Ptr(), viewOf(out), viewOf(values), views, true, mode, scratch(t, bytes), &b))
					requireSame(t, want, out, fmt.Sprint("put ", c, rawtensor.Name(dtype), mode))
				}
			}
		}
	}
}
