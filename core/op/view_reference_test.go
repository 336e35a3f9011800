package op_test

import (
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// A viewCase is an operation that returns a view of a [3 4 2] tensor, and, by its definition, the shape of the result and
// where each of its elements comes from.
type viewCase struct {
	name  string
	fn    func(x *core.Tensor) *core.Tensor
	shape []int
	from  func(at []int) []int
}

func viewCases() []viewCase {
	return []viewCase{
		{"permute", func(x *core.Tensor) *core.Tensor { return op.Permute(x, 2, 0, -2) }, []int{2, 3, 4}, func(a []int) []int { return []int{a[1], a[2], a[0]} }},
		{"transpose", func(x *core.Tensor) *core.Tensor { return op.Transpose(x, 0, -1) }, []int{2, 4, 3}, func(a []int) []int { return []int{a[2], a[1], a[0]} }},
		{"swapaxes", func(x *core.Tensor) *core.Tensor { return op.SwapAxes(x, 1, 0) }, []int{4, 3, 2}, func(a []int) []int { return []int{a[1], a[0], a[2]} }},
		{"mT", op.MT, []int{3, 2, 4}, func(a []int) []int { return []int{a[0], a[2], a[1]} }},
		{"movedim", func(x *core.Tensor) *core.Tensor { return op.Movedim(x, []int{0, 2}, []int{1, 0}) }, []int{2, 3, 4},
			func(a []int) []int { return []int{a[1], a[2], a[0]} }},
		{"expand", func(x *core.Tensor) *core.Tensor { return op.Expand(x, 2, -1, 4, 2) }, []int{2, 3, 4, 2}, func(a []int) []int { return a[1:] }},
		{"unsqueeze", func(x *core.Tensor) *core.Tensor { return op.Unsqueeze(x, -2) }, []int{3, 4, 1, 2}, func(a []int) []int { return []int{a[0], a[1], a[3]} }},
		{"squeeze", func(x *core.Tensor) *core.Tensor { return op.Squeeze(op.Narrow(x, 1, 2, 1)) }, []int{3, 2}, func(a []int) []int { return []int{a[0], 2, a[1]} }},
		{"narrow", func(x *core.Tensor) *core.Tensor { return op.Narrow(x, 1, -3, 2) }, []int{3, 2, 2}, func(a []int) []int { return []int{a[0], a[1] + 1, a[2]} }},
		{"slice", func(x *core.Tensor) *core.Tensor { return op.Slice(x, 0, 0, 3, 2) }, []int{2, 4, 2}, func(a []int) []int { return []int{2 * a[0], a[1], a[2]} }},
		{"slice beyond", func(x *core.Tensor) *core.Tensor { return op.Slice(x, 1, -99, 99, 3) }, []int{3, 2, 2}, func(a []int) []int { return []int{a[0], 3 * a[1], a[2]} }},
		{"select", func(x *core.Tensor) *core.Tensor { return op.Select(x, 1, -1) }, []int{3, 2}, func(a []int) []int { return []int{a[0], 3, a[1]} }},
		{"diagonal", func(x *core.Tensor) *core.Tensor { return op.Diagonal(x, 1, 0, 1) }, []int{2, 3}, func(a []int) []int { return []int{a[1], a[1] + 1, a[0]} }},
		{"diagonal below", func(x *core.Tensor) *core.Tensor { return op.Diagonal(x, -1, 1, 2) }, []int{3, 2}, func(a []int) []int { return []int{a[0], a[1] + 1, a[1]} }},
		{"unfold", func(x *core.Tensor) *core.Tensor { return op.Unfold(x, 1, 3, 1) }, []int{3, 2, 2, 3}, func(a []int) []int { return []int{a[0], a[1] + a[3], a[2]} }},
		{"unfold apart", func(x *core.Tensor) *core.Tensor { return op.Unfold(x, 0, 1, 2) }, []int{2, 4, 2, 1}, func(a []int) []int { return []int{2 * a[0], a[1], a[2]} }},
		{"split", func(x *core.Tensor) *core.Tensor { return op.Split(x, 3, 1)[1] }, []int{3, 1, 2}, func(a []int) []int { return []int{a[0], 3, a[2]} }},
		{"split_with_sizes", func(x *core.Tensor) *core.Tensor { return op.SplitSizes(x, []int{1, 2, 1}, 1)[1] }, []int{3, 2, 2},
			func(a []int) []int { return []int{a[0], a[1] + 1, a[2]} }},
		{"chunk", func(x *core.Tensor) *core.Tensor { return op.Chunk(x, 2, 0)[0] }, []int{2, 4, 2}, slices.Clone[[]int]},
		{"tensor_split", func(x *core.Tensor) *core.Tensor { return op.TensorSplit(x, 3, 1)[1] }, []int{3, 1, 2}, func(a []int) []int { return []int{a[0], 2, a[2]} }},
		{"tensor_split_at", func(x *core.Tensor) *core.Tensor { return op.TensorSplitAt(x, []int{1, -1}, 1)[1] }, []int{3, 2, 2},
			func(a []int) []int { return []int{a[0], a[1] + 1, a[2]} }},
		{"unbind", func(x *core.Tensor) *core.Tensor { return op.Unbind(x, 0)[2] }, []int{4, 2}, func(a []int) []int { return []int{2, a[0], a[1]} }},
	}
}

func TestViewsAgreeWithTheirDefinition(t *testing.T) {
	shape := []int{3, 4, 2}
	for _, d := range core.RealDTypes() {
		for l := contiguous; l < broadcast; l++ {
			x := place(values(t, ramp(shape...)), d, shape, l)
			whole := values(t, x)
			for _, c := range viewCases() {
				v := c.fn(x)
				require.NoError(t, v.Err(), c.name)
				require.Equal(t, c.shape, v.Shape(), c.name)
				require.Same(t, x.Storage(), v.Storage(), "%s must not copy", c.name)
				for i, got := range values(t, v) {
					require.Equal(t, whole[ravel(c.from(unravel(i, c.shape)), shape)], got, "%s of %v %v, element %d", c.name, d, l, i)
				}
			}
		}
	}
}

// What is written through a view reaches its base, and the other way round, and gradients follow.
func TestInPlaceThroughViews(t *testing.T) {
	shape := []int{3, 4, 2}
	for _, c := range viewCases() {
		core.Tidy(func() {
			x := op.Mul(ramp(shape...), core.Num(0.1)).Detach().SetRequiresGrad(true)
			fn := func(in []*core.Tensor) []*core.Tensor {
				y := op.Mul(in[0], in[0])
				v := c.fn(y)
				if overlapping(v) {
					v = op.Mul(v, core.Num(3)) // elements that share memory cannot be changed in place
				} else {
					op.MulInPlace(v, op.Add(v, core.Num(3)))
				}
				w := c.fn(y)
				op.MulInPlace(y, core.Num(2))
				return []*core.Tensor{y, op.Mul(v, v), op.Mul(w, v)}
			}
			require.NoError(t, autograd.Check(fn, []*core.Tensor{x}, 1e-6, 1e-6, 1e-5), c.name)
			require.NoError(t, autograd.CheckDouble(fn, []*core.Tensor{x}, 1e-6, 1e-4, 1e-4), c.name)
		})
	}
}

func overlapping(v *core.Tensor) bool {
	return op.MulInPlace(v.Detach(), core.Num(1)).Err() != nil || v.Dim() == 4 && v.Shape()[3] == 3
}

func TestViewErrors(t *testing.T) {
	x := ramp(3, 4)
	for want, got := range map[string]*core.Tensor{
		"view: a tensor of shape [4 3] with strides [1 4] cannot be seen as [12] without a copy; use reshape": op.View(op.Transpose(x, 0, 1), -1),
		"reshape: shape [5 -1] does not fit the 12 elements of shape [3 4]":                                   op.Reshape(x, 5, -1),
		"reshape: shape [5] has 5 elements, shape [3 4] has 12":                                               op.Reshape(x, 5),
		"reshape: shape [4294967296 4294967296] of float64 is larger than the address space":                  op.Reshape(x, 1<<32, 1<<32),
		"permute: got 1 dimensions [0] for shape [3 4], want each of its 2 once":                              op.Permute(x, 0),
		"permute: dimension 0 appears twice in [0 0]":                                                         op.Permute(x, 0, 0),
		"permute: dimension 2 out of range, want [-2, 1]":                                                     op.Permute(x, 0, 2),
		"expand: shape [3 4] cannot be expanded to [3 5]":                                                     op.Expand(x, 3, 5),
		"expand: shape [3 4] cannot be expanded to [4]":                                                       op.Expand(x, 4),
		"expand: shape [3 4] cannot be expanded to [-1 3 4]":                                                  op.Expand(x, -1, 3, 4),
		"narrow: 3 indices from 2 on do not fit dimension 0 of shape [3 4]":                                   op.Narrow(x, 0, 2, 3),
		"narrow: start 4 out of range for dimension 0 of shape [3 4]":                                         op.Narrow(x, 0, 4, 0),
		"unfold: windows of size 5, 1 apart, do not fit dimension 1 of shape [3 4]":                           op.Unfold(x, 1, 5, 1),
		"diagonal: dimensions 1 and 1 of shape [3 4] span no matrix":                                          op.Diagonal(x, 0, 1, -1),
		"unflatten: sizes [3 2] do not fit dimension 1 of shape [3 4]":                                        op.Unflatten(x, 1, 3, 2),
		"split: the size of a part must be positive, got 0":                                                   op.Split(x, 0, 0)[0],
		"split: sizes [1 1] do not add up to the size 3 of dimension 0":                                       op.SplitSizes(x, []int{1, 1}, 0)[0],
		"as_strided: shape [3 4] with strides [5 1] and offset 0 reaches elements 0 to 13 of a storage of 12": op.AsStrided(x, []int{3, 4}, []int{5, 1}, 0),
		"transpose: got a number, want a tensor":                                                              op.Transpose(core.Num(1), 0, 0),
		"clone: got a nil tensor":                                                                             op.Clone(nil),
		"cat: shapes [3 4] and [3 5] differ in more than dimension 0":                                         op.Cat([]*core.Tensor{x, ramp(3, 5)}, 0),
		"cat: got no tensors":                       op.Cat(nil, 0),
		"cat: tensor 1 of the list is nil":          op.Cat([]*core.Tensor{x, nil}, 0),
		"stack: shapes differ, got [3 4] and [3 5]": op.Stack([]*core.Tensor{x, ramp(3, 5)}, 0),
		"mul_: elements of a tensor expanded to [2 3 4] share memory and cannot be changed in place; clone it first": op.MulInPlace(op.Expand(x, 2, 3, 4), core.Num(2)),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

// FuzzBroadcast holds broadcasting to its definition, and views of any arguments to an error instead of a panic.
func FuzzBroadcast(f *testing.F) {
	f.Add([]byte{2, 3, 1, 2, 1, 4, 0, 0, 0})
	f.Add([]byte{3, 1, 1, 1, 3, 5, 0, 2, 7, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		}
		shape := func() []int {
			s := make([]int, next(4))
			for i := range s {
				s[i] = []int{1, 2, 3, 0, 1, 5}[next(6)]
			}
			return s
		}
		core.Tidy(func() {
			a, b := shape(), shape()
			x, y := ramp(a...), ramp(b...)
			want, ok := broadcastShape(a, b)
			sum := op.Add(x, y)
			views := op.BroadcastTensors(x, y)
			if !ok {
				require.Error(t, sum.Err())
				require.Error(t, views[0].Err())
				return
			}
			require.NoError(t, sum.Err())
			require.Equal(t, want, nonNil(sum.Shape()))
			xs, ys := values(t, views[0]), values(t, views[1])
			for i, got := range values(t, sum) {
				at := unravel(i, want)
				p, q := source(at, a), source(at, b)
				require.Equal(t, []float64{float64(p), float64(q), float64(p + q)}, []float64{xs[i], ys[i], got})
			}
			small := func() int { return next(256) - 100 }
			for _, v := range []*core.Tensor{op.Reshape(x, small(), small()), op.Expand(x, small(), small()), op.Permute(x, small(), small()),
				op.Narrow(x, small(), small(), small()), op.Slice(x, small(), small(), small(), small()), op.Unfold(x, small(), small(), small()),
				op.Diagonal(x, small(), small(), small()), op.AsStrided(x, []int{next(5), next(5)}, []int{small(), small()}, small()),
				op.Movedim(x, []int{small()}, []int{small()}), op.Unflatten(x, small(), small(), small()), op.Roll(x, []int{small()}, []int{small()}),
				op.Flip(x, []int{small()}), op.Repeat(x, next(4), next(4), next(4)), op.Select(x, small(), small()), op.Cat([]*core.Tensor{x, y}, small())} {
				if v.Err() == nil {
					require.Len(t, values(t, v), core.Numel(v.Shape()))
				}
			}
		})
	})
}

func broadcastShape(a, b []int) ([]int, bool) {
	out := make([]int, max(len(a), len(b)))
	for i := range out {
		m, n := 1, 1
		if k := i - len(out) + len(a); k >= 0 {
			m = a[k]
		}
		if k := i - len(out) + len(b); k >= 0 {
			n = b[k]
		}
		if m != n && m != 1 && n != 1 {
			return nil, false
		}
		out[i] = m
		if m == 1 {
			out[i] = n
		}
	}
	return out, true
}

// source returns which element of a tensor of the given shape an index of the broadcast shape reads.
func source(at, shape []int) int {
	own := make([]int, len(shape))
	for i, n := range shape {
		if n > 1 {
			own[i] = at[len(at)-len(shape)+i]
		}
	}
	return ravel(own, shape)
}
