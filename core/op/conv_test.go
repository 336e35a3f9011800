package op_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func uniform(seed uint64, shape ...int) *core.Tensor {
	r := rand.New(rand.NewPCG(seed, 7))
	v := make([]float64, core.Numel(shape))
	for i := range v {
		v[i] = 2*r.Float64() - 1
	}
	return core.FromSlice(v, shape...)
}

func requireValues(t *testing.T, want, got []float64, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if !(math.Abs(want[i]-got[i]) <= tolerance*(1+math.Abs(want[i]))) {
			require.Failf(t, "values differ", "element %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

// odometer calls f with every index of shape, in row-major order.
func odometer(shape []int, f func(index []int)) {
	index := make([]int, len(shape))
	for n := core.Numel(shape); n > 0; n-- {
		f(index)
		for i := len(shape) - 1; i >= 0; i-- {
			if index[i]++; index[i] < shape[i] {
				break
			}
			index[i] = 0
		}
	}
}

func flat(shape, index []int) int {
	n := 0
	for i := range shape {
		n = n*shape[i] + index[i]
	}
	return n
}

// correlate is the definition: y[n, o, q] = b[o] + sum of w[o, c, t] x[n, group of o + c, q stride + t dilation - padding].
func correlate(x, w, b []float64, xs, ws, out, stride, padding, dilation []int, groups int) []float64 {
	nd := len(out)
	ys := append([]int{xs[0], ws[0]}, out...)
	y := make([]float64, core.Numel(ys))
	odometer(ys, func(yi []int) {
		s := 0.0
		if b != nil {
			s = b[yi[1]]
		}
		odometer(ws[1:], func(wi []int) {
			xi := []int{yi[0], yi[1]/(ws[0]/groups)*ws[1] + wi[0]}
			for d := range nd {
				p := yi[2+d]*stride[d] + wi[1+d]*dilation[d] - padding[d]
				if p < 0 || p >= xs[2+d] {
					return
				}
				xi = append(xi, p)
			}
			s += x[flat(xs, xi)] * w[flat(ws, append([]int{yi[1]}, wi...))]
		})
		y[flat(ys, yi)] = s
	})
	return y
}

func TestConvAgainstItsDefinition(t *testing.T) {
	for _, c := range []struct {
		x, w                      []int
		stride, padding, dilation []int
		groups                    int
		out                       []int
	}{
		{[]int{2, 3, 9}, []int{4, 3, 3}, []int{2}, []int{1}, []int{1}, 1, []int{5}},
		{[]int{2, 4, 7, 8}, []int{6, 2, 3, 2}, []int{2, 3}, []int{1, 0}, []int{1, 2}, 2, []int{4, 2}},
		{[]int{1, 2, 4, 5, 6}, []int{3, 2, 2, 3, 3}, []int{1, 2, 1}, []int{1, 1, 0}, []int{2, 1, 1}, 1, []int{4, 3, 4}},
	} {
		nd := len(c.out)
		x, w, b := uniform(1, c.x...), uniform(2, c.w...), uniform(3, c.w[0])
		want := correlate(values(t, x), values(t, w), values(t, b), c.x, c.w, c.out, c.stride, c.padding, c.dilation, c.groups)
		o := op.ConvOptions{Stride: c.stride, Padding: c.padding, Dilation: c.dilation, Groups: c.groups}
		f := []func(x, w, b *core.Tensor, o op.ConvOptions) *core.Tensor{op.Conv1d, op.Conv2d, op.Conv3d}[nd-1]
		y := f(x, w, b, o)
		require.NoError(t, y.Err())
		require.Equal(t, append([]int{c.x[0], c.w[0]}, c.out...), y.Shape())
		requireValues(t, want, values(t, y), 1e-13)

		// The same from strided operands: every other element of twice as many, and the channels last.
		wide := uniform(4, append(append([]int{}, c.x[:len(c.x)-1]...), 2*c.x[len(c.x)-1])...)
		strides := append([]int{}, wide.Strides()...)
		strides[len(strides)-1] = 2
		xs := op.AsStrided(wide, c.x, strides, 1)
		ws := append([]int{1, c.w[0]}, wide.Strides()[:0]...)
		n := c.w[0] * c.w[1]
		for range nd {
			ws = append(ws, 0)
		}
		for d := nd - 1; d >= 0; d-- {
			ws[2+d] = n
			n *= c.w[2+d]
		}
		wt := op.AsStrided(uniform(5, core.Numel(c.w)), c.w, ws, 0)
		want = correlate(values(t, xs), values(t, wt), nil, c.x, c.w, c.out, c.stride, c.padding, c.dilation, c.groups)
		requireValues(t, want, values(t, f(xs, wt, nil, o)), 1e-13)

		// The transpose of the map: <y, conv(x)> = <transpose(y), x>.
		g := uniform(6, y.Shape()...)
		ft := []func(x, w, b *core.Tensor, o op.ConvTransposeOptions) *core.Tensor{op.ConvTranspose1d, op.ConvTranspose2d, op.ConvTranspose3d}[nd-1]
		extra := make([]int, nd)
		for d := range nd {
			extra[d] = c.x[2+d] - ((c.out[d]-1)*c.stride[d] - 2*c.padding[d] + c.dilation[d]*(c.w[2+d]-1) + 1)
		}
		back := ft(g, w, nil, op.ConvTransposeOptions{Stride: c.stride, Padding: c.padding, Dilation: c.dilation, Groups: c.groups, OutputPadding: extra})
		require.NoError(t, back.Err())
		require.Equal(t, c.x, back.Shape())
		plain := values(t, f(x, w, nil, o))
		left, right := 0.0, 0.0
		for i, v := range values(t, g) {
			left += v * plain[i]
		}
		for i, v := range values(t, back) {
			right += v * values(t, x)[i]
		}
		require.InDelta(t, left, right, 1e-12*(1+math.Abs(left)))
	}
}

func TestConvWithoutABatch(t *testing.T) {
	x, w := uniform(1, 3, 6, 5), uniform(2, 4, 3, 3, 3)
	y := op.Conv2d(x, w, nil, op.ConvOptions{})
	require.NoError(t, y.Err())
	require.Equal(t, []int{4, 4, 3}, y.Shape())
	requireValues(t, values(t, op.Conv2d(op.Reshape(x, 1, 3, 6, 5), w, nil, op.ConvOptions{})), values(t, y), 0)
}

func TestConvSamePadding(t *testing.T) {
	// An even kernel pads one element more behind than in front.
	x := core.FromSlice([]float64{1, 2, 3}, 1, 1, 3)
	w := core.FromSlice([]float64{1, 10, 100, 1000}, 1, 1, 4)
	y := op.Conv1d(x, w, nil, op.ConvOptions{Same: true})
	require.NoError(t, y.Err())
	require.Equal(t, []float64{3210, 321, 32}, values(t, y))
}

func TestConvErrors(t *testing.T) {
	x, w := uniform(1, 2, 4, 6, 6), uniform(2, 6, 4, 3, 3)
	zero := core.FromSlice([]float32{1}, 1, 1, 1, 1)
	for want, got := range map[string]*core.Tensor{
		"conv2d: input has shape [4], want 4 dimensions, or 3 without a batch":                                                                 op.Conv2d(uniform(1, 4), w, nil, op.ConvOptions{}),
		"conv1d: weight has shape [6 4 3 3], want 3 dimensions":                                                                                op.Conv1d(uniform(1, 2, 4, 6), w, nil, op.ConvOptions{}),
		"conv2d: input of shape [2 4 6 6] has 4 channels, weight of shape [6 4 3 3] in 2 groups wants 8 and a multiple of 2 outputs":           op.Conv2d(x, w, nil, op.ConvOptions{Groups: 2}),
		"conv2d: groups must be positive, got -1":                                                                                              op.Conv2d(x, w, nil, op.ConvOptions{Groups: -1}),
		"conv2d: bias has shape [5], want [6]":                                                                                                 op.Conv2d(x, w, uniform(1, 5), op.ConvOptions{}),
		"conv2d: stride has 3 entries, want 1 or 2":                                                                                            op.Conv2d(x, w, nil, op.ConvOptions{Stride: []int{1, 1, 1}}),
		"conv2d: stride must be at least 1, got [0]":                                                                                           op.Conv2d(x, w, nil, op.ConvOptions{Stride: []int{0}}),
		"conv2d: padding must be at least 0, got [-1]":                                                                                         op.Conv2d(x, w, nil, op.ConvOptions{Padding: []int{-1}}),
		"conv2d: padding to the same size needs stride 1 and no other padding, got stride [2 2] and padding []":                                op.Conv2d(x, w, nil, op.ConvOptions{Same: true, Stride: []int{2}}),
		"conv2d: kernel reaches over 7 of 6 padded elements of dimension -2: input [2 4 6 6], weight [6 4 3 3], padding [0 0], dilation [3 1]": op.Conv2d(x, w, nil, op.ConvOptions{Dilation: []int{3, 1}}),
		"conv2d: input, weight and bias must have one dtype, got [float64 float32]":                                                            op.Conv2d(x, zero, nil, op.ConvOptions{}),
		"conv2d: the input must be floating point, got int64":                                                                                  op.Conv2d(core.FromSlice([]int64{1}, 1, 1, 1, 1), zero, nil, op.ConvOptions{}),
		"conv_transpose2d: input of shape [2 4 6 6] has 4 channels, weight of shape [6 4 3 3] wants 6, a multiple of 1 groups":                 op.ConvTranspose2d(x, w, nil, op.ConvTransposeOptions{}),
		"conv_transpose2d: output_padding must be smaller than the stride or the dilation, got [1 1] with stride [1 1] and dilation [1 1]":     op.ConvTranspose2d(x, uniform(1, 4, 2, 3, 3), nil, op.ConvTransposeOptions{OutputPadding: []int{1}}),
	} {
		require.EqualError(t, got.Err(), want)
	}
}
