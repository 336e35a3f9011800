package op_test

import (
	"math"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// A pickCase is an operation that arranges the elements of a [3 4] tensor anew: by its definition, the shape of the
// result and the element that goes to each place, or -1 for zero.
type pickCase struct {
	name  string
	fn    func(x *core.Tensor) *core.Tensor
	shape []int
	from  func(at []int) int
}

func TestRearrangementsAgreeWithTheirDefinition(t *testing.T) {
	index := func(r, c int) int { return 4*r + c }
	at := int64s([]int{2, 3}, 1, 0, 3, 2, 2, 1)
	named := [][]int{{1, 0, 3}, {2, 2, 1}}
	rows := int64s([]int{4}, 2, 0, 0, 1)
	rowNames := []int{2, 0, 0, 1}
	dim0, dim1 := 0, 1
	cases := []pickCase{
		{"flip", func(x *core.Tensor) *core.Tensor { return op.Flip(x, []int{-1, 0}) }, []int{3, 4}, func(a []int) int { return index(2-a[0], 3-a[1]) }},
		{"fliplr", op.Fliplr, []int{3, 4}, func(a []int) int { return index(a[0], 3-a[1]) }},
		{"flipud", op.Flipud, []int{3, 4}, func(a []int) int { return index(2-a[0], a[1]) }},
		{"rot90", func(x *core.Tensor) *core.Tensor { return op.Rot90(x, 1, []int{0, 1}) }, []int{4, 3}, func(a []int) int { return index(a[1], 3-a[0]) }},
		{"rot180", func(x *core.Tensor) *core.Tensor { return op.Rot90(x, -2, []int{0, 1}) }, []int{3, 4}, func(a []int) int { return index(2-a[0], 3-a[1]) }},
		{"rot270", func(x *core.Tensor) *core.Tensor { return op.Rot90(x, 3, []int{0, 1}) }, []int{4, 3}, func(a []int) int { return index(2-a[1], a[0]) }},
		{"roll", func(x *core.Tensor) *core.Tensor { return op.Roll(x, []int{1, -5}, []int{0, 1}) }, []int{3, 4},
			func(a []int) int { return index((a[0]+2)%3, (a[1]+1)%4) }},
		{"roll one dimension twice", func(x *core.Tensor) *core.Tensor { return op.Roll(x, []int{1, 1}, []int{1, 1}) }, []int{3, 4},
			func(a []int) int { return index(a[0], (a[1]+2)%4) }},
		{"roll flat", func(x *core.Tensor) *core.Tensor { return op.Roll(x, []int{5}, nil) }, []int{3, 4}, func(a []int) int { return (index(a[0], a[1]) + 7) % 12 }},
		{"repeat", func(x *core.Tensor) *core.Tensor { return op.Repeat(x, 2, 1, 3) }, []int{2, 3, 12}, func(a []int) int { return index(a[1], a[2]%4) }},
		{"tile", func(x *core.Tensor) *core.Tensor { return op.Tile(x, 2) }, []int{3, 8}, func(a []int) int { return index(a[0], a[1]%4) }},
		{"repeat_interleave", func(x *core.Tensor) *core.Tensor {
			return op.RepeatInterleave(x, core.FromSlice([]int32{2, 0, 3}), &dim0)
		}, []int{5, 4},
			func(a []int) int { return index([]int{0, 0, 2, 2, 2}[a[0]], a[1]) }},
		{"repeat_interleave flat", func(x *core.Tensor) *core.Tensor { return op.RepeatInterleave(x, int64s([]int{}, 2), nil) }, []int{24}, func(a []int) int { return a[0] / 2 }},
		{"tril", func(x *core.Tensor) *core.Tensor { return op.Tril(x, 1) }, []int{3, 4}, func(a []int) int {
			if a[1]-a[0] > 1 {
				return -1
			}
			return index(a[0], a[1])
		}},
		{"triu", func(x *core.Tensor) *core.Tensor { return op.Triu(x, 0) }, []int{3, 4}, func(a []int) int {
			if a[1] < a[0] {
				return -1
			}
			return index(a[0], a[1])
		}},
		{"tril of all", func(x *core.Tensor) *core.Tensor { return op.Tril(x, math.MaxInt) }, []int{3, 4}, func(a []int) int { return index(a[0], a[1]) }},
		{"triu of none", func(x *core.Tensor) *core.Tensor { return op.Triu(x, math.MaxInt) }, []int{3, 4}, func([]int) int { return -1 }},
		{"diag", func(x *core.Tensor) *core.Tensor { return op.Diag(x, 1) }, []int{3}, func(a []int) int { return index(a[0], a[0]+1) }},
		{"diag_embed", func(x *core.Tensor) *core.Tensor { return op.DiagEmbed(x, -1, 0, -1) }, []int{5, 3, 5}, func(a []int) int {
			if a[0]-1 != a[2] {
				return -1
			}
			return index(a[1], a[2])
		}},
		{"gather", func(x *core.Tensor) *core.Tensor { return op.Gather(x, 1, at) }, []int{2, 3}, func(a []int) int { return index(a[0], named[a[0]][a[1]]) }},
		{"take_along_dim", func(x *core.Tensor) *core.Tensor { return op.TakeAlongDim(x, int64s([]int{1, 2}, 3, 0), &dim1) }, []int{3, 2},
			func(a []int) int { return index(a[0], []int{3, 0}[a[1]]) }},
		{"index_select", func(x *core.Tensor) *core.Tensor { return op.IndexSelect(x, 0, rows) }, []int{4, 4}, func(a []int) int { return index(rowNames[a[0]], a[1]) }},
		{"index_select columns", func(x *core.Tensor) *core.Tensor { return op.IndexSelect(x, -1, rows) }, []int{3, 4}, func(a []int) int { return index(a[0], rowNames[a[1]]) }},
		{"take", func(x *core.Tensor) *core.Tensor { return op.Take(x, int64s([]int{2, 1}, -1, 5)) }, []int{2, 1}, func(a []int) int { return []int{11, 5}[a[0]] }},
		{"embedding", func(x *core.Tensor) *core.Tensor {
			return op.Embedding(op.Reshape(rows, 2, 2), x, op.EmbeddingOptions{})
		}, []int{2, 2, 4},
			func(a []int) int { return index(rowNames[2*a[0]+a[1]], a[2]) }},
		{"masked_select", func(x *core.Tensor) *core.Tensor {
			return op.MaskedSelect(x, bools([]int{4}, false, true, false, true))
		}, []int{6},
			func(a []int) int { return index(a[0]/2, 2*(a[0]%2)+1) }},
		{"cat", func(x *core.Tensor) *core.Tensor { return op.Cat([]*core.Tensor{x, op.Narrow(x, 1, 1, 2)}, -1) }, []int{3, 6},
			func(a []int) int { return index(a[0], []int{0, 1, 2, 3, 1, 2}[a[1]]) }},
		{"stack", func(x *core.Tensor) *core.Tensor { return op.Stack([]*core.Tensor{x, x}, 1) }, []int{3, 2, 4}, func(a []int) int { return index(a[0], a[2]) }},
	}
	for _, d := range core.RealDTypes() {
		for l := contiguous; l < broadcast; l++ {
			x := place(values(t, ramp(3, 4)), d, []int{3, 4}, l)
			whole := values(t, x)
			for _, c := range cases {
				got := c.fn(x)
				require.NoError(t, got.Err(), c.name)
				require.Equal(t, d, got.DType(), c.name)
				require.Equal(t, c.shape, got.Shape(), c.name)
				for i, v := range values(t, got) {
					want := 0.0
					if k := c.from(unravel(i, c.shape)); k >= 0 {
						want = whole[k]
					}
					require.Equal(t, want, v, "%s of %v %v, element %d", c.name, d, l, i)
				}
			}
		}
	}
}

func TestScatteringValues(t *testing.T) {
	index := int64s([]int{2, 3}, 1, 0, 1, 2, 1, 2)
	for _, d := range core.RealDTypes() {
		if d == core.Bool {
			continue
		}
		x := op.To(op.Add(ramp(2, 3), core.IntNum(1)), d) // 1 2 3; 4 5 6
		src := op.To(op.Reshape(core.FromSlice([]float64{5, 7, 2, 3, 8, 4}), 2, 3), d)
		for name, c := range map[string]struct {
			got  *core.Tensor
			want []float64
		}{
			"scatter":        {op.Scatter(x, 1, index, src), []float64{7, 2, 3, 4, 8, 4}},
			"scatter number": {op.Scatter(x, 1, index, core.IntNum(9)), []float64{9, 9, 3, 4, 9, 9}},
			"scatter_add":    {op.ScatterAdd(x, 1, index, src), []float64{8, 9, 3, 4, 13, 13}},
			"prod":           {op.ScatterReduce(x, 1, index, src, "prod", true), []float64{7, 20, 3, 4, 40, 72}},
			"prod without":   {op.ScatterReduce(x, 1, index, src, "prod", false), []float64{7, 10, 3, 4, 8, 12}},
			"sum without":    {op.ScatterReduce(x, 1, index, src, "sum", false), []float64{7, 7, 3, 4, 8, 7}},
			"amax":           {op.ScatterReduce(x, 1, index, src, "amax", true), []float64{7, 5, 3, 4, 8, 6}},
			"amin":           {op.ScatterReduce(x, 1, index, src, "amin", true), []float64{1, 2, 3, 4, 5, 3}},
			"amin without":   {op.ScatterReduce(x, 1, index, src, "amin", false), []float64{7, 2, 3, 4, 8, 3}},
			"mean":           {op.ScatterReduce(x, 1, index, src, "mean", true), []float64{4, 3, 3, 4, 6.5, 13. / 3}},
			"mean without":   {op.ScatterReduce(x, 1, index, src, "mean", false), []float64{7, 3.5, 3, 4, 8, 3.5}},
			"index_add":      {op.IndexAdd(x, 0, int64s([]int{2}, 1, 1), src), []float64{1, 2, 3, 12, 20, 12}},
			"index_add 2":    {op.IndexAddScaled(x, 0, int64s([]int{2}, 1, 0), src, 2), []float64{7, 18, 11, 14, 19, 10}},
			"index_copy":     {op.IndexCopy(x, 0, int64s([]int{2}, 1, 1), src), []float64{1, 2, 3, 3, 8, 4}},
			"index_fill":     {op.IndexFill(x, 1, int64s([]int{2}, -1, 0), core.IntNum(9)), []float64{9, 2, 9, 9, 5, 9}},
			"masked_scatter": {op.MaskedScatter(x, bools([]int{3}, true, false, true), src), []float64{5, 2, 7, 2, 5, 3}},
		} {
			if d == core.Uint64 && strings.HasPrefix(name, "mean") {
				require.ErrorContains(t, c.got.Err(), "uint64 has no mean")
				continue
			}
			require.NoError(t, c.got.Err(), name)
			require.Equal(t, d, c.got.DType())
			for i, v := range values(t, c.got) {
				want := c.want[i]
				if !d.IsFloat() {
					want = math.Floor(want)
				}
				require.InDelta(t, want, v, 0.02, "%s of %v, element %d", name, d, i)
			}
		}
		op.PutInPlace(x, int64s([]int{3}, -1, 0, -1), op.To(core.FromSlice([]float64{1, 2, 3}), d), true)
		require.Equal(t, []float64{3, 2, 3, 4, 5, 10}, values(t, x))
	}
}

func TestCreation(t *testing.T) {
	i32 := core.Int32
	half := core.Float16
	for name, c := range map[string]struct {
		got   *core.Tensor
		dtype core.DType
		shape []int
		want  []float64
	}{
		"zeros":        {op.Zeros(2, 1), core.Float32, []int{2, 1}, []float64{0, 0}},
		"ones":         {op.OnesWith([]int{3}, op.TensorOptions{DType: &i32}), i32, []int{3}, []float64{1, 1, 1}},
		"full":         {op.Full([]int{2}, core.IntNum(7), op.TensorOptions{}), core.Int64, []int{2}, []float64{7, 7}},
		"full bool":    {op.Full([]int{1}, core.BoolNum(true), op.TensorOptions{}), core.Bool, []int{1}, []float64{1}},
		"full half":    {op.Full([]int{}, core.Num(0.5), op.TensorOptions{DType: &half}), half, []int{}, []float64{0.5}},
		"full_like":    {op.FullLike(int64s([]int{1}, 3), core.Num(2.9), op.TensorOptions{}), core.Int64, []int{1}, []float64{2}},
		"eye":          {op.Eye(2, 3, op.TensorOptions{}), core.Float32, []int{2, 3}, []float64{1, 0, 0, 0, 1, 0}},
		"eye tall":     {op.Eye(3, 1, op.TensorOptions{}), core.Float32, []int{3, 1}, []float64{1, 0, 0}},
		"arange":       {op.Arange(nil, core.IntNum(3), nil, op.TensorOptions{}), core.Int64, []int{3}, []float64{0, 1, 2}},
		"arange step":  {op.Arange(core.IntNum(7), core.IntNum(0), core.IntNum(-3), op.TensorOptions{}), core.Int64, []int{3}, []float64{7, 4, 1}},
		"arange float": {op.Arange(core.Num(1), core.Num(2), core.Num(0.25), op.TensorOptions{}), core.Float32, []int{4}, []float64{1, 1.25, 1.5, 1.75}},
		"arange none":  {op.Arange(core.IntNum(2), core.IntNum(2), nil, op.TensorOptions{}), core.Int64, []int{0}, []float64{}},
		"arange large": {op.Arange(core.IntNum(1<<60), core.IntNum(1<<60+2), nil, op.TensorOptions{}), core.Int64, []int{2}, []float64{1 << 60, 1<<60 + 1}},
		"linspace":     {op.Linspace(1, 2, 5, op.TensorOptions{}), core.Float32, []int{5}, []float64{1, 1.25, 1.5, 1.75, 2}},
		"logspace":     {op.Logspace(0, 3, 4, 2, op.TensorOptions{}), core.Float32, []int{4}, []float64{1, 2, 4, 8}},
		"tril_indices": {op.TrilIndices(2, 3, 0, op.TensorOptions{}), core.Int64, []int{2, 3}, []float64{0, 1, 1, 0, 0, 1}},
		"triu_indices": {op.TriuIndices(2, 3, 1, op.TensorOptions{}), core.Int64, []int{2, 3}, []float64{0, 0, 1, 1, 2, 2}},
		"triu int32":   {op.TriuIndices(2, 3, 1, op.TensorOptions{DType: &i32}), core.Int32, []int{2, 3}, []float64{0, 0, 1, 1, 2, 2}},
		"one_hot":      {op.OneHot(int64s([]int{2}, 2, 0), -1), core.Int64, []int{2, 3}, []float64{0, 0, 1, 1, 0, 0}},
	} {
		require.NoError(t, c.got.Err(), name)
		require.Equal(t, c.dtype, c.got.DType(), name)
		require.Equal(t, c.shape, nonNil(c.got.Shape()), name)
		require.Equal(t, c.want, append([]float64{}, values(t, c.got)...), name)
	}
	require.True(t, op.ZerosWith([]int{1}, op.TensorOptions{RequiresGrad: true}).RequiresGrad())
	for want, got := range map[string]*core.Tensor{
		"arange: the step must not be zero":                                                op.Arange(nil, core.IntNum(3), core.IntNum(0), op.TensorOptions{}),
		"arange: a step of 1 does not lead from 3 to 0":                                    op.Arange(core.IntNum(3), core.IntNum(0), nil, op.TensorOptions{}),
		"zeros: negative dimension in shape [2 -1]":                                        op.Zeros(2, -1),
		"zeros: shape [4611686018427387904 4] of float32 is larger than the address space": op.Zeros(1<<62, 4),
		"linspace: the number of steps must not be negative, got -1":                       op.Linspace(0, 1, -1, op.TensorOptions{}),
		"requires_grad: only tensors of a floating-point or complex dtype can require gradients, got int32[2] on cpu:0": op.ZerosWith([]int{2},
			op.TensorOptions{DType: &i32, RequiresGrad: true}),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

// For every matrix of up to five rows and columns and every diagonal, the indices are those of the elements that stay.
func TestTriangleIndices(t *testing.T) {
	for rows := range 6 {
		for columns := range 6 {
			for offset := -7; offset <= 7; offset++ {
				for _, upper := range []bool{false, true} {
					var r, c []float64
					for i := range rows {
						for j := range columns {
							if !upper && j-i <= offset || upper && j-i >= offset {
								r, c = append(r, float64(i)), append(c, float64(j))
							}
						}
					}
					got := op.TrilIndices(rows, columns, offset, op.TensorOptions{})
					if upper {
						got = op.TriuIndices(rows, columns, offset, op.TensorOptions{})
					}
					require.Equal(t, []int{2, len(r)}, got.Shape())
					require.Equal(t, append(append([]float64{}, r...), c...), append([]float64{}, values(t, got)...), "%d x %d, %d, upper %v", rows, columns, offset, upper)
				}
			}
		}
	}
}

func TestCatPromotesAndConverts(t *testing.T) {
	x := op.Cat([]*core.Tensor{int64s([]int{2}, 1, 2), op.To(core.FromSlice([]float64{0.5}), core.Float16), bools([]int{1}, true)}, 0)
	require.Equal(t, core.Float16, x.DType())
	require.Equal(t, []float64{1, 2, 0.5, 1}, values(t, x))
	require.Equal(t, core.Float32, op.Stack([]*core.Tensor{op.To(ramp(2), core.Float16), op.To(ramp(2), core.BFloat16)}, 0).DType())
}

func TestConversions(t *testing.T) {
	x := core.FromSlice([]float64{-1.7, 0, 0.3, 255.9, 300, math.NaN()})
	require.Equal(t, []float64{-1, 0, 0, 255, 300}, values(t, op.To(x, core.Int64))[:5])
	require.Equal(t, []float64{255, 0, 0, 255, 44, 0}, values(t, op.To(x, core.Uint8)))
	require.Equal(t, []float64{1, 0, 1, 1, 1, 1}, values(t, op.To(x, core.Bool)))
	require.Equal(t, []float64{1}, values(t, op.FillInPlace(bools([]int{1}, false), core.Num(0.5))))
	y := core.FromSlice([]float32{1, 2}).SetRequiresGrad(true)
	require.Same(t, y.Storage(), op.To(y, core.Float32).Storage())
	require.False(t, op.To(y, core.Int32).RequiresGrad())
}

func TestCopiesBetweenDevices(t *testing.T) {
	other, err := core.OpenDevice("cpu:1")
	require.NoError(t, err)
	x := core.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3).SetRequiresGrad(true)
	y := op.ToDevice(op.Transpose(x, 0, 1), other)
	require.Equal(t, other, y.Device())
	require.Equal(t, []float64{1, 4, 2, 5, 3, 6}, values(t, y))
	z := op.Zeros(3, 2)
	op.CopyInPlace(z, op.Mul(y, y))
	require.Equal(t, []float64{1, 16, 4, 25, 9, 36}, values(t, z))
	grads, err := autograd.Grad([]*core.Tensor{z}, []*core.Tensor{x}, []*core.Tensor{op.OnesLike(z, op.TensorOptions{})}, autograd.Options{})
	require.NoError(t, err)
	g := grads[0]
	require.Equal(t, []float64{2, 4, 6, 8, 10, 12}, values(t, g))
	require.Equal(t, x.Device(), g.Device())
	picked := op.Index(x, core.Pick(op.ToDevice(int64s([]int{1}, 1), other))) // indices follow the tensor
	require.Equal(t, []float64{4, 5, 6}, values(t, picked))
}
