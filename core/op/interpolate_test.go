package op_test

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func TestUpsamplingBilinear(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4}, 1, 1, 2, 2)
	for _, c := range []struct {
		align bool
		want  []float64
	}{
		{false, []float64{1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4}},
		{true, []float64{1, 4. / 3, 5. / 3, 2, 5. / 3, 2, 7. / 3, 8. / 3, 7. / 3, 8. / 3, 3, 10. / 3, 3, 10. / 3, 11. / 3, 4}},
	} {
		y := op.Interpolate(x, op.InterpolateOptions{ScaleFactor: []float64{2}, Mode: "bilinear", AlignCorners: c.align})
		require.NoError(t, y.Err())
		require.Equal(t, []int{1, 1, 4, 4}, y.Shape())
		requireValues(t, c.want, values(t, y), 1e-6)
	}
}

// cubicKernel is Keys' convolution kernel.
func cubicKernel(x float64) float64 {
	const a = -0.75
	switch x = math.Abs(x); {
	case x <= 1:
		return (a+2)*x*x*x - (a+3)*x*x + 1
	case x < 2:
		return a*x*x*x - 5*a*x*x + 8*a*x - 4*a
	}
	return 0
}

// resampleRow is the definition in one dimension, with the border repeated outside.
func resampleRow(x []float64, out int, mode string, align bool) []float64 {
	y := make([]float64, out)
	in := len(x)
	at := func(i int) float64 { return x[min(max(i, 0), in-1)] }
	for o := range y {
		p := (float64(o)+0.5)*float64(in)/float64(out) - 0.5
		if align {
			p = 0
			if out > 1 {
				p = float64(o) * float64(in-1) / float64(out-1)
			}
		}
		i := int(math.Floor(p))
		switch mode {
		case "nearest":
			y[o] = at(o * in / out)
		case "nearest-exact":
			y[o] = at(int((float64(o) + 0.5) * float64(in) / float64(out)))
		case "bicubic":
			for k := i - 1; k <= i+2; k++ {
				y[o] += cubicKernel(p-float64(k)) * at(k)
			}
		default:
			y[o] = at(i)*(1-(p-float64(i))) + at(i+1)*(p-float64(i))
		}
	}
	return y
}

func TestInterpolateAgainstItsDefinition(t *testing.T) {
	linear := []string{"linear", "bilinear", "trilinear"}
	for _, sizes := range [][2][]int{
		{{5}, {8}}, {{8}, {3}}, {{1}, {4}}, {{4}, {1}}, {{300}, {517}},
		{{4, 5}, {7, 3}}, {{6, 6}, {6, 12}}, {{33, 17}, {16, 41}},
		{{2, 3, 4}, {5, 3, 2}},
	} {
		in, out := sizes[0], sizes[1]
		nd := len(in)
		for _, align := range []bool{false, true} {
			modes := []string{linear[nd-1]}
			if !align {
				modes = append(modes, "nearest", "nearest-exact")
			}
			if nd == 2 {
				modes = append(modes, "bicubic")
			}
			for _, mode := range modes {
				x := uniform(3, append([]int{2, 3}, in...)...)
				y := op.Interpolate(x, op.InterpolateOptions{Size: out, Mode: mode, AlignCorners: align})
				require.NoError(t, y.Err())
				// One dimension after the other.
				v, shape := values(t, x), append([]int{6}, in...)
				for d := 1; d <= nd; d++ {
					next := append([]int{}, shape...)
					next[d] = out[d-1]
					w := make([]float64, core.Numel(next))
					odometer(next, func(index []int) {
						if index[d] != 0 {
							return
						}
						row := make([]float64, shape[d])
						i := append([]int{}, index...)
						for k := range row {
							i[d] = k
							row[k] = v[flat(shape, i)]
						}
						for k, z := range resampleRow(row, next[d], mode, align) {
							i[d] = k
							w[flat(next, i)] = z
						}
					})
					v, shape = w, next
				}
				requireValues(t, v, values(t, y), 1e-12)
			}
		}
	}
}

func TestInterpolateScaleFactor(t *testing.T) {
	// With a scale factor positions follow from it, not from the sizes that it leads to.
	x := core.FromSlice([]float64{0, 1, 2, 3, 4}, 1, 1, 5)
	y := op.Interpolate(x, op.InterpolateOptions{ScaleFactor: []float64{1.5}, Mode: "linear"})
	require.Equal(t, []int{1, 1, 7}, y.Shape())
	want := []float64{0, 0.5, 7. / 6, 11. / 6, 2.5, 19. / 6, 23. / 6}
	requireValues(t, want, values(t, y), 1e-12)
	again := op.Interpolate(x, op.InterpolateOptions{ScaleFactor: []float64{1.5}, Mode: "linear", RecomputeScaleFactor: true})
	requireValues(t, values(t, op.Interpolate(x, op.InterpolateOptions{Size: []int{7}, Mode: "linear"})), values(t, again), 0)

	bytes := core.FromSlice([]uint8{3, 200}, 1, 1, 2)
	require.Equal(t, []float64{3, 3, 200, 200}, values(t, op.Interpolate(bytes, op.InterpolateOptions{ScaleFactor: []float64{2}})))
}

func TestInterpolateErrors(t *testing.T) {
	x := uniform(1, 2, 3, 4, 5)
	for want, o := range map[string]op.InterpolateOptions{
		"interpolate: want either size or scale_factor, got [] and []":                                                          {},
		`interpolate: unknown mode "cubic", want nearest, nearest-exact, linear, bilinear, bicubic, trilinear, lanczos or area`: {Size: []int{2}, Mode: "cubic"},
		`interpolate: mode "linear" wants 3 dimensions, got an input of shape [2 3 4 5]`:                                        {Size: []int{2}, Mode: "linear"},
		`interpolate: corners cannot be aligned in mode "nearest"`:                                                              {Size: []int{2}, AlignCorners: true},
		`interpolate: antialias wants mode bilinear, bicubic or lanczos and an input [n, c, h, w], got mode "nearest"`:          {Size: []int{2}, Antialias: true},
		`interpolate: mode "lanczos" wants antialias`:                                                                           {Size: []int{2}, Mode: "lanczos"},
		`interpolate: corners cannot be aligned in mode "lanczos"`:                                                              {Size: []int{2}, Mode: "lanczos", Antialias: true, AlignCorners: true},
		"interpolate: size must be at least 1, got [0]":                                                                         {Size: []int{0}},
		"interpolate: scale_factor [0.1] makes nothing of, or too much from, the input of shape [2 3 4 5]":                      {ScaleFactor: []float64{0.1}},
		"interpolate: scale_factor has 3 entries, want 1 or 2":                                                                  {ScaleFactor: []float64{1, 2, 3}},
	} {
		require.EqualError(t, op.Interpolate(x, o).Err(), want)
	}
}

func TestPadAgainstItsDefinition(t *testing.T) {
	source := func(i, n int, cut [2]int, mode string) int {
		if i >= cut[0] && i < n-cut[1] {
			return i
		}
		switch mode {
		case "reflect":
			if i < 0 {
				return -i
			}
			return 2*(n-1) - i
		case "replicate":
			return min(max(i, 0), n-1)
		case "circular":
			kept := n - cut[0] - cut[1] // what is cut off is not repeated
			return cut[0] + (i-cut[0]+kept)%kept
		}
		return -1
	}
	for _, mode := range []string{"constant", "reflect", "replicate", "circular"} {
		for _, pad := range [][]int{{1, 2}, {2, 0, 1, 2}, {0, 3, 2, 1, 1, 1}, {-1, 2, 1, -2}, {-3, -1, 0, 0, -1, 2}} {
			shape := []int{3, 4, 5}
			x := op.Permute(uniform(1, 5, 4, 3), 2, 1, 0)
			v := values(t, x)
			want, outShape := []float64{}, append([]int{}, shape...)
			left, cut := make([]int, 3), make([][2]int, 3)
			for i := range len(pad) / 2 {
				left[2-i], cut[2-i] = pad[2*i], [2]int{max(-pad[2*i], 0), max(-pad[2*i+1], 0)}
				outShape[2-i] += pad[2*i] + pad[2*i+1]
			}
			odometer(outShape, func(o []int) {
				i := make([]int, 3)
				for d := range i {
					if i[d] = source(o[d]-left[d], shape[d], cut[d], mode); i[d] < 0 {
						want = append(want, 7)
						return
					}
				}
				want = append(want, v[flat(shape, i)])
			})
			y := op.Pad(x, pad, op.PadOptions{Mode: mode, Value: 7})
			require.NoError(t, y.Err())
			require.Equal(t, outShape, y.Shape())
			require.Equal(t, want, values(t, y), "%s %v", mode, pad)
		}
	}
	for _, d := range core.RealDTypes() {
		y := op.Pad(op.To(core.FromSlice([]int64{1, 0, 1}, 3), d), []int{1, 1}, op.PadOptions{Value: 1})
		require.Equal(t, d, y.DType())
		require.Equal(t, []float64{1, 1, 0, 1, 1}, values(t, y), d)
	}
}

func TestPadErrors(t *testing.T) {
	x := uniform(1, 2, 3)
	for want, got := range map[string]*core.Tensor{
		"pad: pad is [1], want two numbers for each of at most 2 dimensions":            op.Pad(x, []int{1}, op.PadOptions{}),
		"pad: pad is [1 1 1 1 1 1], want two numbers for each of at most 2 dimensions":  op.Pad(x, []int{1, 1, 1, 1, 1, 1}, op.PadOptions{}),
		"pad: pad [-4 2] cuts more off than dimension -1 of shape [2 3] has":            op.Pad(x, []int{-4, 2}, op.PadOptions{}),
		"pad: reflect padding of 3 and 0 is too large for dimension -1 of shape [2 3]":  op.Pad(x, []int{3, 0}, op.PadOptions{Mode: "reflect"}),
		"pad: circular padding of 0 and 4 is too large for dimension -1 of shape [2 3]": op.Pad(x, []int{0, 4}, op.PadOptions{Mode: "circular"}),
		`pad: unknown mode "edge", want constant, reflect, replicate or circular`:       op.Pad(x, []int{0, 4}, op.PadOptions{Mode: "edge"}),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

func TestIm2ColMakesAConvolution(t *testing.T) {
	x, w := uniform(1, 2, 3, 7, 8), uniform(2, 4, 3, 2, 3)
	o := op.PatchOptions{Stride: []int{2, 1}, Padding: []int{1, 2}, Dilation: []int{1, 2}}
	columns := op.Im2Col(x, []int{2, 3}, o)
	require.NoError(t, columns.Err())
	y := op.Conv2d(x, w, nil, op.ConvOptions{Stride: o.Stride, Padding: o.Padding, Dilation: o.Dilation})
	require.NoError(t, y.Err())
	product := op.MatMul(op.Reshape(w, 4, 18), columns)
	requireValues(t, values(t, y), values(t, op.Reshape(product, y.Shape()...)), 1e-12)

	// Folding is the transpose: every element of a patch goes back to its place.
	v := values(t, columns)
	square := 0.0
	for _, c := range v {
		square += c * c
	}
	dot := 0.0
	for i, c := range values(t, op.Col2Im(columns, []int{7, 8}, []int{2, 3}, o)) {
		dot += c * values(t, x)[i]
	}
	require.InDelta(t, square, dot, 1e-10)
}

func TestPixelShuffle(t *testing.T) {
	x := core.FromSlice([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 4, 1, 2)
	y := op.PixelShuffle(x, 2)
	require.Equal(t, []int{1, 2, 4}, y.Shape())
	require.Equal(t, []float64{0, 2, 1, 3, 4, 6, 5, 7}, values(t, y))
	require.Equal(t, values(t, x), values(t, op.PixelUnshuffle(y, 2)))
	z := op.ChannelShuffle(core.FromSlice([]float32{0, 1, 2, 3, 4, 5}, 1, 6, 1), 2)
	require.Equal(t, []float64{0, 3, 1, 4, 2, 5}, values(t, z))
	require.EqualError(t, op.PixelShuffle(x, 3).Err(), "pixel_shuffle: input of shape [4 1 2] has 4 channels, want a multiple of 3 * 3")
}

// TestInterpolateImagesOfBytes compares with PyTorch's values, which are rounded after each of the two directions.
func TestInterpolateImagesOfBytes(t *testing.T) {
	x := core.FromSlice([]uint8{0, 255, 30, 77, 201, 5}, 1, 1, 2, 3)
	for mode, want := range map[string][]float64{
		"nearest":  {0, 0, 255, 255, 30, 0, 0, 255, 255, 30, 77, 77, 201, 201, 5},
		"bilinear": {0, 102, 255, 120, 30, 39, 115, 228, 102, 18, 77, 127, 201, 83, 5},
		"bicubic":  {0, 113, 255, 140, 9, 33, 127, 228, 113, 4, 71, 141, 196, 86, 0},
	} {
		got := op.Interpolate(x, op.InterpolateOptions{Size: []int{3, 5}, Mode: mode})
		require.Equal(t, core.Uint8, got.DType())
		require.Equal(t, want, values(t, got), mode)
	}
	require.ErrorContains(t, op.Interpolate(op.To(x, core.Int32), op.InterpolateOptions{Size: []int{3, 5}, Mode: "bilinear"}).Err(), "must be floating point, got int32")
}
