package op_test

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// slowly returns the transform of a line by its definition.
func slowly(x []complex128, inverse bool) []complex128 {
	n := len(x)
	y := make([]complex128, n)
	for k := range y {
		for j, v := range x {
			angle := 2 * math.Pi * float64(j*k%n) / float64(n)
			if !inverse {
				angle = -angle
			}
			y[k] += v * cmplx.Rect(1, angle)
		}
	}
	return y
}

// byDefinition adds the transforms of a line, and of what is real or symmetric of it, to those of others.
func byDefinition(to map[string][]complex128, line []complex128) {
	n := len(line)
	parts, whole := make([]complex128, n), make([]complex128, n)
	for j, v := range line {
		parts[j] = complex(real(v), 0)
		if whole[j] = v; j > n/2 {
			whole[j] = cmplx.Conj(line[n-j])
		} else if j == 0 || 2*j == n {
			whole[j] = complex(real(v), 0)
		}
	}
	kept := n/2 + 1
	for name, values := range map[string][]complex128{
		"fft": slowly(line, false), "ifft": slowly(line, true), "rfft": slowly(parts, false)[:kept], "ihfft": slowly(parts, true)[:kept],
		"irfft": slowly(whole, true), "hfft": slowly(whole, false),
	} {
		to[name] = append(to[name], values...)
	}
}

func randomLine(r *rand.Rand, n int) []complex128 {
	x := make([]complex128, n)
	for i := range x {
		x[i] = complex(r.NormFloat64(), r.NormFloat64())
	}
	return x
}

func complexValues(t *testing.T, x *core.Tensor) []complex128 {
	t.Helper()
	v, err := realValues(op.To(x, core.Complex128))
	require.NoError(t, err)
	out := make([]complex128, len(v)/2)
	for i := range out {
		out[i] = complex(v[2*i], v[2*i+1])
	}
	return out
}

// distance returns the norm of a-b divided by that of b.
func distance(a, b []complex128) float64 {
	d, n := 0.0, 0.0
	for i := range b {
		d += real((a[i] - b[i]) * cmplx.Conj(a[i]-b[i]))
		n += real(b[i] * cmplx.Conj(b[i]))
	}
	return math.Sqrt(d / max(n, 1e-300))
}

// TestTransformsByDefinition compares every kind of line with the sum that defines it: few and many lines, side by side and one after the
// other, of lengths that are split, that are odd, and that have large prime factors.
// requireWhole requires that the transform of real lines is its first half and, behind it, the conjugates of that.
func requireWhole(t *testing.T, half, whole *core.Tensor) {
	n := whole.Size(1)
	require.Equal(t, complexValues(t, half), complexValues(t, op.Narrow(whole, 1, 0, n/2+1)))
	rest := n - n/2 - 1
	require.Equal(t, complexValues(t, op.Conj(op.Narrow(whole, 1, 1, rest))), complexValues(t, op.Flip(op.Narrow(whole, 1, n/2+1, rest), []int{1})))
}

func TestTransformsByDefinition(t *testing.T) {
	coretest.SkipUnderRace(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 25, 29, 31, 37, 62, 64, 74, 77, 90, 128, 169, 211, 222, 251, 256, 257, 300, 502, 512, 514, 961, 1000, 1021, 1369} {
		for _, lines := range []int{1, 3, 17} {
			if n*n*lines > 2e6 || testing.Short() && n*lines > 256 {
				continue
			}
			t.Run(fmt.Sprintf("%d lines of %d", lines, n), func(t *testing.T) {
				core.Tidy(func() {
					var flat []complex128
					want := map[string][]complex128{}
					for range lines {
						line := randomLine(r, n)
						flat = append(flat, line...)
						byDefinition(want, line)
					}
					for _, d := range []core.DType{core.Complex128, core.Complex64} {
						tolerance := map[core.DType]float64{core.Complex128: 2e-15, core.Complex64: 1e-6}[d]
						x := op.To(core.FromSlice(flat, lines, n), d)
						for _, beside := range []bool{false, true} { // lines side by side
							y := x
							if beside {
								y = op.Transpose(op.Contiguous(op.Transpose(x, 0, 1)), 0, 1)
							}
							half := op.Narrow(y, 1, 0, n/2+1)
							results := map[string][]complex128{
								"fft":   complexValues(t, op.FFT(y, nil, 1, "")),
								"ifft":  complexValues(t, op.IFFT(y, nil, -1, "forward")),
								"rfft":  complexValues(t, op.RFFT(op.Real(y), nil, 1, "")),
								"ihfft": complexValues(t, op.IHFFT(op.Real(y), nil, 1, "forward")),
								"irfft": complexValues(t, op.IRFFT(half, &n, 1, "forward")),
								"hfft":  complexValues(t, op.HFFT(half, &n, 1, "")),
							}
							for name, got := range results {
								require.LessOrEqual(t, distance(got, want[name]), tolerance, "%s of %v, side by side: %v", name, d, beside)
							}
							requireWhole(t, op.RFFT(op.Real(y), nil, 1, ""), op.FFT(op.Real(y), nil, 1, ""))
							requireWhole(t, op.IHFFT(op.Real(y), nil, 1, "ortho"), op.IFFT(op.Real(y), nil, 1, "ortho"))
						}
					}
				})
			})
		}
	}
}

// TestLongTransforms has lines that do not fit the caches, by their inverse and by single frequencies.
func TestLongTransforms(t *testing.T) {
	coretest.SkipUnderRace(t)
	sizes := []int{1 << 13, 30000, 1 << 17, 3 * 65537}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for _, n := range sizes {
		for _, lines := range []int{1, 2} {
			core.Tidy(func() {
				x := core.FromSlice(randomLine(rand.New(rand.NewPCG(3, 4)), lines*n), lines, n)
				want := complexValues(t, x)
				require.LessOrEqual(t, distance(complexValues(t, op.IFFT(op.FFT(x, nil, 1, "ortho"), nil, 1, "ortho")), want), 2e-15, "%d", n)
				re := op.Real(x)
				require.LessOrEqual(t, distance(complexValues(t, op.IRFFT(op.RFFT(re, nil, 1, ""), &n, 1, "")), complexValues(t, re)), 2e-15, "%d", n)

				requireWhole(t, op.RFFT(re, nil, 1, ""), op.FFT(re, nil, 1, ""))

				wave := make([]complex128, n)
				for j := range wave {
					wave[j] = cmplx.Rect(1, 2*math.Pi*float64(j*12345%n)/float64(n))
				}
				spectrum := complexValues(t, op.FFT(core.FromSlice(wave), nil, 0, "forward"))
				peak := make([]complex128, n)
				peak[12345%n] = 1
				require.LessOrEqual(t, distance(spectrum, peak), 1e-14, "%d", n)
			})
		}
	}
}

func TestTransformsOverSeveralDimensions(t *testing.T) {
	x := core.FromSlice(randomLine(rand.New(rand.NewPCG(5, 6)), 60), 3, 4, 5)
	one := func(x *core.Tensor, dims ...int) *core.Tensor {
		for _, d := range dims {
			x = op.FFT(x, nil, d, "")
		}
		return x
	}
	near := func(got, want *core.Tensor) {
		t.Helper()
		require.Equal(t, want.Shape(), got.Shape())
		require.LessOrEqual(t, distance(complexValues(t, got), complexValues(t, want)), 1e-15)
	}
	near(op.FFTN(x, nil, nil, ""), one(x, 0, 1, 2))
	near(op.FFTN(x, nil, []int{-1, 0}, ""), one(x, 0, 2))
	near(op.FFTN(x, []int{6, -1}, nil, ""), one(op.Pad(x, []int{0, 0, 0, 2}, op.PadOptions{}), 1, 2))
	near(op.FFTN(x, nil, []int{}, ""), x)
	near(op.IFFTN(op.FFTN(x, nil, nil, "ortho"), nil, nil, "ortho"), x)
	re := op.Real(x)
	near(op.RFFTN(re, nil, []int{2, 0}, ""), op.Narrow(one(re, 0, 2), 0, 0, 2))
	near(op.RFFTN(re, nil, nil, ""), op.Narrow(one(re, 0, 1, 2), 2, 0, 3))
	near(op.IRFFTN(op.RFFTN(re, nil, nil, ""), []int{3, 4, 5}, nil, ""), re)
	near(op.HFFTN(op.IHFFTN(re, nil, nil, ""), []int{3, 4, 5}, nil, ""), re)
	near(op.IHFFTN(re, nil, nil, "forward"), op.Conj(op.RFFTN(re, nil, nil, "")))
}

func TestFrequencies(t *testing.T) {
	wide := op.TensorOptions{DType: new(core.DType)}
	*wide.DType = core.Float64
	requireNear(t, op.FFTFreq(5, 0.5, wide), 0, 0.4, 0.8, -0.8, -0.4)
	requireNear(t, op.FFTFreq(4, 1, wide), 0, 0.25, -0.5, -0.25)
	requireNear(t, op.RFFTFreq(5, 1, wide), 0, 0.2, 0.4)
	requireNear(t, op.FFTShift(op.FFTFreq(5, 0.2, wide), nil), -2, -1, 0, 1, 2)
	requireNear(t, op.IFFTShift(op.FFTShift(op.FFTFreq(5, 0.2, wide), nil), nil), 0, 1, 2, -2, -1)
}

func TestShortTimeTransforms(t *testing.T) {
	core.Tidy(func() {
		x := op.Real(core.FromSlice(randomLine(rand.New(rand.NewPCG(7, 8)), 2*50), 2, 50))
		window := op.Add(op.Real(core.FromSlice(randomLine(rand.New(rand.NewPCG(9, 10)), 12))), core.Num(3))
		hop, length, n := 5, 12, 50
		o := op.STFTOptions{HopLength: &hop, WinLength: &length, Center: true}
		y := op.STFT(x, 16, window, o)
		require.Equal(t, []int{2, 9, 11}, y.Shape())
		frame := op.Mul(op.Narrow(x, 1, 3*hop-8+2, 12), window)
		want := op.RFFT(op.Pad(frame, []int{2, 2}, op.PadOptions{}), nil, -1, "")
		require.LessOrEqual(t, distance(complexValues(t, op.Select(y, 2, 3)), complexValues(t, want)), 1e-15)
		o.Length = &n
		back := op.ISTFT(y, 16, window, o)
		require.LessOrEqual(t, distance(complexValues(t, back), complexValues(t, x)), 1e-14)
		z := op.STFT(op.Select(x, 0, 0), 16, nil, op.STFTOptions{})
		require.Equal(t, []int{9, 9}, z.Shape())
		requireNear(t, op.Narrow(op.ISTFT(z, 16, nil, op.STFTOptions{}), 0, 0, 3), realOf(t, op.Narrow(op.Select(x, 0, 0), 0, 0, 3))...)
	})
}

func realOf(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := realValues(x)
	require.NoError(t, err)
	return v
}

func TestTransformsRefuse(t *testing.T) {
	x, z := op.Ones(3, 4), op.To(op.Ones(3, 4), core.Complex64)
	n, one, yes := 0, 1, true
	for _, c := range []struct {
		got  *core.Tensor
		want string
	}{
		{op.FFT(x, &n, -1, ""), "fft_fft: cannot transform 0 points, want at least 1"},
		{op.FFT(x, nil, 2, ""), "fft_fft: "},
		{op.FFT(op.Ones(), nil, -1, ""), "fft_fft: dimension -1 of a tensor without dimensions"},
		{op.FFT(x, nil, -1, "none"), `fft_fft: norm is "none", want "backward", "forward" or "ortho"`},
		{op.FFT(op.To(x, core.Float16), nil, -1, ""), "fft_fft: not defined for float16"},
		{op.RFFT(z, nil, -1, ""), "fft_rfft: got complex64, want real numbers"},
		{op.IRFFT(op.Ones(3, 1), nil, -1, ""), "fft_irfft: cannot transform 0 points"},
		{op.FFTN(x, []int{1, 2, 3}, nil, ""), "fft_fftn: got 3 sizes for a tensor of 2 dimensions"},
		{op.FFTN(x, []int{1}, []int{0, 1}, ""), "fft_fftn: got 1 sizes for 2 dimensions"},
		{op.FFTN(x, nil, []int{1, -1}, ""), "fft_fftn: dimension -1 appears twice in [1 -1]"},
		{op.RFFTN(x, nil, []int{}, ""), "fft_rfftn: want at least one dimension"},
		{op.STFT(x, 5, nil, op.STFTOptions{}), "stft: a frame has 5 elements, want 1 to 4"},
		{op.STFT(op.Ones(1, 1, 9), 4, nil, op.STFTOptions{}), "stft: got shape [1 1 9], want one or two dimensions"},
		{op.STFT(x, 4, nil, op.STFTOptions{HopLength: &n}), "stft: frames are 0 apart"},
		{op.STFT(x, 4, op.Ones(3), op.STFTOptions{}), "stft: the window has shape [3], want [4]"},
		{op.STFT(z, 4, nil, op.STFTOptions{OneSided: &yes}), "stft: half of the frequencies"},
		{op.ISTFT(x, 4, nil, op.STFTOptions{}), "istft: got float32, want complex numbers"},
		{op.ISTFT(z, 6, nil, op.STFTOptions{}), "istft: got 3 frequencies in shape [3 4], want 4"},
		{op.ISTFT(z, 4, op.Zeros(4), op.STFTOptions{HopLength: &one}), "istft: the squares of the window's elements add up to 0"},
		{op.FFTFreq(3, 1, op.TensorOptions{DType: new(core.Int64)}), "fft_fftfreq: got int64"},
	} {
		require.ErrorContains(t, c.got.Err(), c.want)
	}
}
