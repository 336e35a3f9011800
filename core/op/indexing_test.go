package op_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// ramp returns a float64 tensor of the given shape with the elements 0, 1, 2, ...
func ramp(shape ...int) *core.Tensor {
	v := make([]float64, core.Numel(shape))
	for i := range v {
		v[i] = float64(i)
	}
	return op.Reshape(core.FromSlice(v), shape...)
}

func int64s(shape []int, v ...int64) *core.Tensor { return op.Reshape(core.FromSlice(v), shape...) }

func bools(shape []int, v ...bool) *core.Tensor { return op.Reshape(core.FromSlice(v), shape...) }

var indexShapes = [][]int{{5}, {3, 4}, {2, 3, 4}, {2, 3, 2, 3}, {1, 5}, {3, 0}, {}, {2, 2, 2, 2, 2}}

func TestIndexAgreesWithItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 1500 {
		core.Tidy(func() {
			shape := indexShapes[i%len(indexShapes)]
			requireIndexAgrees(t, shape, randomIndices(shape, rng.IntN), layout(i%int(broadcast)))
		})
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte{2, 3, 1, 4, 9, 8, 0, 1, 2, 3})
	f.Add([]byte{5, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n int) int {
			if len(data) == 0 || n <= 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		}
		core.Tidy(func() {
			shape := indexShapes[next(len(indexShapes))]
			indices := randomIndices(shape, next)
			if next(4) == 0 && len(indices) > 0 { // damage one: an error may come, a panic or a wrong element may not
				i := next(len(indices))
				if indices[i].Kind == core.IndexInteger {
					indices[i].Start += next(256) - 128
				} else {
					indices[i].Start = next(64) - 32
				}
			}
			requireIndexAgrees(t, shape, indices, layout(next(int(broadcast))))
		})
	})
}

func TestIndexErrors(t *testing.T) {
	x := ramp(3, 4)
	for want, got := range map[string]*core.Tensor{
		"index: too many indices, got [0 0 0] for shape [3 4]":                                                                         op.Index(x, core.At(0), core.At(0), core.At(0)),
		"index: select: index 3 out of range for dimension 0 of shape [3 4]":                                                           op.Index(x, core.At(3)),
		"index: select: index -5 out of range for dimension 0 of shape [4]":                                                            op.Index(x, core.At(0), core.At(-5)),
		"index: slice: the step must be positive, got 0":                                                                               op.Index(x, core.Span(0, 2).By(0)),
		"index: got 2 ellipses, want at most one":                                                                                      op.Index(x, core.Ellipsis(), core.Ellipsis()),
		"index: a mask of shape [4] does not fit dimension 0 of shape [3 4]":                                                           op.Index(x, core.Pick(bools([]int{4}, true, true, true, true))),
		"index: indices must be a tensor of int64 or int32, got float64[2] on cpu:0":                                                   op.Index(x, core.Pick(ramp(2))),
		"index: shapes [[2] [3]] do not broadcast: sizes 2 and 3 at dimension 0":                                                       op.Index(x, core.Pick(int64s([]int{2}, 0, 1)), core.Pick(int64s([]int{3}, 0, 1, 2))),
		"index: dimension 0 of shape [0 4] has no elements to index":                                                                   op.Index(op.Zeros(0, 4), core.Pick(int64s([]int{1}, 0))),
		"index: got a nil tensor":                                                                                                      op.Index(nil, core.At(0)),
		"index_put_: values of shape [5] do not broadcast to the indexed shape [2 4]":                                                  op.IndexSet(x, ramp(5), core.Pick(int64s([]int{2}, 0, 1))),
		"index_put_: copy_: shape [5] cannot be broadcast to [4]":                                                                      op.IndexSet(x, ramp(5), core.At(1)),
		"gather: indices of shape [2] do not fit a tensor of shape [3 4], want as many dimensions and none larger outside dimension 0": op.Gather(x, 0, int64s([]int{2}, 0, 1)),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

// Indices out of range are found when the kernel runs: new tensors fail, tensors changed in place stay as they were.
func TestIndicesOutOfRange(t *testing.T) {
	x := ramp(3, 4)
	for _, c := range []struct {
		want string
		fn   func(index *core.Tensor) *core.Tensor
	}{
		{"index: index 7 at position 1 is out of range for dimension 0 of size 3", func(i *core.Tensor) *core.Tensor { return op.Index(x, core.Pick(i)) }},
		{"index_select: index 7 at position 1 is out of range for dimension 1 of size 4", func(i *core.Tensor) *core.Tensor { return op.IndexSelect(x, 1, i) }},
		{"embedding: index 7 at position 1 is out of range for dimension 0 of size 3", func(i *core.Tensor) *core.Tensor { return op.Embedding(i, x, op.EmbeddingOptions{}) }},
		{"take: index 7 at position 1 is out of range for dimension 0 of size 3", func(i *core.Tensor) *core.Tensor { return op.Take(ramp(3), i) }},
		{"gather: index 7 at position 1 is out of range for dimension 1 of size 4", func(i *core.Tensor) *core.Tensor { return op.Gather(x, 1, op.Reshape(i, 1, 3)) }},
		{"scatter: index 7 at position 1 is out of range for dimension 1 of size 4", func(i *core.Tensor) *core.Tensor {
			return op.Scatter(x, 1, op.Reshape(i, 1, 3), core.Num(1))
		}},
		{"index_add: index 7 at position 1 is out of range for dimension 0 of size 3", func(i *core.Tensor) *core.Tensor { return op.IndexAdd(x, 0, i, ramp(3, 4)) }},
		{"one_hot: index 7 at position 1 is out of range for dimension 1 of size 5", func(i *core.Tensor) *core.Tensor { return op.OneHot(i, 5) }},
	} {
		r := c.fn(int64s([]int{3}, 1, 7, 9))
		require.NoError(t, r.Err())
		after := op.Add(r, core.IntNum(1)) // carries the failure on
		require.EqualError(t, r.Wait(), c.want)
		require.EqualError(t, after.Wait(), c.want)
		kind, _ := core.KindOf(after.Wait())
		require.Equal(t, core.IndexError, kind)
	}
	before := values(t, x)
	op.IndexPutInPlace(x, []*core.Tensor{int64s([]int{2}, 0, -4)}, core.Num(9), false)
	require.EqualError(t, x.Wait(), "index_put_: index -4 at position 1 is out of range for dimension 0 of size 3")
	op.ScatterAddInPlace(x, 0, int64s([]int{2, 1}, 0, 3), ramp(2, 1))
	require.EqualError(t, x.Wait(), "scatter_add_: index 3 at position 1 is out of range for dimension 0 of size 3")
	require.Equal(t, before, values(t, x))
}

func TestIndexGradients(t *testing.T) {
	picks := [][]core.Index{
		{core.At(1)}, {core.Ellipsis(), core.Span(0, 4).By(2)}, {core.NewAxis(), core.At(-1), core.SpanFrom(1)},
		{core.Pick(int64s([]int{3}, 0, 2, 0))}, {core.All(), core.Pick(int64s([]int{2, 2}, 3, -1, 0, 3))},
		{core.Pick(int64s([]int{2, 1}, 0, 1)), core.NewAxis(), core.Pick(int64s([]int{2}, 3, 0))},
		{core.Pick(bools([]int{3}, true, false, true)), core.SpanTo(2)},
		{core.Pick(bools([]int{3, 4}, true, false, true, false, false, false, true, true, false, true, false, true))},
		{core.Pick(bools([]int{}, true)), core.At(0)},
	}
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(shape ...int) *core.Tensor {
		v := make([]float64, core.Numel(shape))
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		return op.Reshape(core.FromSlice(v), shape...).Detach().SetRequiresGrad(true)
	}
	for _, p := range picks {
		core.Tidy(func() {
			x := random(3, 4)
			read := func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{op.Index(op.Mul(in[0], in[0]), p...)} }
			require.NoError(t, autograd.Check(read, []*core.Tensor{x}, 1e-6, 1e-7, 1e-6), "%v", p)
			require.NoError(t, autograd.CheckDouble(read, []*core.Tensor{x}, 1e-6, 1e-6, 1e-5), "%v", p)
			shape := op.Index(x, p...).Shape()
			if duplicates(t, p) {
				return // writing would be differentiable only in the order of the indices
			}
			write := func(in []*core.Tensor) []*core.Tensor {
				y := op.Mul(in[0], in[0])
				op.IndexSet(y, op.Mul(in[1], in[1]), p...)
				return []*core.Tensor{op.Mul(y, y)}
			}
			v := random(shape...)
			require.NoError(t, autograd.Check(write, []*core.Tensor{x, v}, 1e-6, 1e-6, 1e-5), "%v", p)
			require.NoError(t, autograd.CheckDouble(write, []*core.Tensor{x, v}, 1e-6, 1e-5, 1e-4), "%v", p)
			if len(shape) > 0 { // broadcast
				require.NoError(t, autograd.Check(write, []*core.Tensor{x, random(1, shape[len(shape)-1])}, 1e-6, 1e-6, 1e-5), "%v", p)
			}
		})
	}
}

func duplicates(t *testing.T, p []core.Index) bool {
	r, _ := take(t, []int{3, 4}, p)
	sorted := slices.Clone(r.elements)
	slices.Sort(sorted)
	return len(slices.Compact(sorted)) < len(r.elements)
}

func TestIndexSetConvertsAndBroadcasts(t *testing.T) {
	x := op.To(ramp(2, 3), core.Int32)
	require.NoError(t, op.IndexSet(x, core.FromSlice([]float64{7.9, -1.5, 2}), core.At(0)).Err())
	require.Equal(t, []float64{7, -1, 2, 3, 4, 5}, values(t, x))
	require.NoError(t, op.IndexSet(x, op.Reshape(ramp(3), 1, 1, 3), core.Pick(int64s([]int{1}, 1))).Err())
	require.Equal(t, []float64{7, -1, 2, 0, 1, 2}, values(t, x))
	require.NoError(t, op.IndexSet(x, core.Num(4.7)).Err())
	require.Equal(t, []float64{4, 4, 4, 4, 4, 4}, values(t, x))
	leaf := op.Zeros(3).SetRequiresGrad(true)
	require.ErrorContains(t, op.IndexSet(leaf, core.Num(1), core.At(0)).Err(), "leaf that requires a gradient")
	core.NoGrad(func() { require.NoError(t, op.IndexSet(leaf, core.Num(1), core.At(0)).Err()) })
	require.Equal(t, []float64{1, 0, 0}, values(t, leaf))
}

func TestOverlappingMemoryIsCopiedFirst(t *testing.T) {
	x := ramp(6)
	op.CopyInPlace(op.Slice(x, 0, 1, math.MaxInt, 1), op.Slice(x, 0, 0, 5, 1))
	require.Equal(t, []float64{0, 0, 1, 2, 3, 4}, values(t, x))
	y := ramp(2, 2)
	op.CopyInPlace(y, op.Transpose(y, 0, 1))
	require.Equal(t, []float64{0, 2, 1, 3}, values(t, y))
	i := int64s([]int{3}, 2, 0, 1)
	op.IndexPutInPlace(i, []*core.Tensor{i}, i, false) // i[i] = i
	require.Equal(t, []float64{0, 1, 2}, values(t, i))
}
