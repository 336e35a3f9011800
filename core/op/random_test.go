package op

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

func read(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func TestSeedRepeatsNumbers(t *testing.T) {
	draw := func() [][]float64 {
		core.ManualSeed(17)
		return [][]float64{
			read(t, Rand(3, 5)), read(t, Randn(7)), read(t, RandnWith([]int{4}, RandomOptions{DType: new(core.Float64)})),
			read(t, Randint(0, 100, 9)), read(t, Randperm(11)), read(t, Rand(2)), read(t, Rand()), read(t, Rand(3, 0)),
		}
	}
	first := draw()
	require.Equal(t, first, draw())
	require.NotEqual(t, first[0][0], first[5][0])
	require.Len(t, first[6], 1)
	require.Empty(t, first[7])

	// A generator of one's own does not move the rank's, and has a state to return to.
	core.ManualSeed(17)
	g := core.NewGenerator(17)
	require.Equal(t, first[0], read(t, RandWith([]int{3, 5}, RandomOptions{Generator: g})))
	require.Equal(t, first[0], read(t, Rand(3, 5)))
	seed, offset := g.State()
	next := read(t, RandWith([]int{5}, RandomOptions{Generator: g}))
	g.SetState(seed, offset)
	require.Equal(t, next, read(t, RandWith([]int{5}, RandomOptions{Generator: g})))
}

func TestRandomLike(t *testing.T) {
	x := RandnWith([]int{2, 3}, RandomOptions{DType: new(core.Float16)})
	for _, y := range []*core.Tensor{RandLike(x, RandomOptions{}), RandnLike(x, RandomOptions{}), RandintLike(x, 0, 5, RandomOptions{})} {
		require.NoError(t, y.Err())
		require.Equal(t, core.Float16, y.DType())
		require.Equal(t, []int{2, 3}, y.Shape())
	}
	require.Equal(t, core.Float64, RandLike(x, RandomOptions{DType: new(core.Float64)}).DType())
}

func TestPermutationsOfOtherDTypes(t *testing.T) {
	for _, d := range []core.DType{core.Uint8, core.Int16, core.Int32, core.Float16, core.BFloat16, core.Float64} {
		core.ManualSeed(9)
		want := read(t, Randperm(200))
		core.ManualSeed(9)
		y := RandpermWith(200, RandomOptions{DType: &d})
		require.Equal(t, d, y.DType())
		require.Equal(t, want, read(t, y))
	}
	require.NoError(t, RandpermWith(256, RandomOptions{DType: new(core.Uint8)}).Err())
	require.EqualError(t, RandpermWith(257, RandomOptions{DType: new(core.Uint8)}).Err(), "randperm: uint8 does not have all integers below 257")
	require.ErrorContains(t, RandpermWith(2050, RandomOptions{DType: new(core.Float16)}).Err(), "float16 does not have all integers below 2050")
	require.ErrorContains(t, RandpermWith(1, RandomOptions{DType: new(core.Bool)}).Err(), "a permutation has integers or floating-point numbers, got bool")
	require.ErrorContains(t, RandpermWith(-1, RandomOptions{DType: new(core.Int32)}).Err(), "the length must not be negative, got -1")
}

// Filling a strided tensor writes the numbers that a contiguous one gets, and nothing between them.
func TestFillInPlaceOnStrides(t *testing.T) {
	fills := map[string]func(x *core.Tensor, o RandomOptions) *core.Tensor{
		"uniform":     func(x *core.Tensor, o RandomOptions) *core.Tensor { return UniformInPlace(x, 2, 3, o) },
		"normal":      func(x *core.Tensor, o RandomOptions) *core.Tensor { return NormalInPlace(x, 10, 1, o) },
		"exponential": func(x *core.Tensor, o RandomOptions) *core.Tensor { return ExponentialInPlace(x, 2, o) },
		"log_normal":  func(x *core.Tensor, o RandomOptions) *core.Tensor { return LogNormalInPlace(x, 0, 1, o) },
		"cauchy":      func(x *core.Tensor, o RandomOptions) *core.Tensor { return CauchyInPlace(x, 0, 1, o) },
		"geometric":   func(x *core.Tensor, o RandomOptions) *core.Tensor { return GeometricInPlace(x, 0.5, o) },
		"trunc":       func(x *core.Tensor, o RandomOptions) *core.Tensor { return TruncNormalInPlace(x, 0, 1, 0.5, 1, o) },
		"random":      func(x *core.Tensor, o RandomOptions) *core.Tensor { return RandomInPlace(x, 5, 50, o) },
		"bernoulli":   func(x *core.Tensor, o RandomOptions) *core.Tensor { return BernoulliInPlace(x, core.Num(0.5), o) },
	}
	for name, fill := range fills {
		t.Run(name, func(t *testing.T) {
			options := func() RandomOptions { return RandomOptions{Generator: core.NewGenerator(3)} }
			plain := fill(core.FromSlice(make([]float32, 6), 3, 2), options())
			base := core.FromSlice([]float32{-9, -9, -9, -9, -9, -9, -9, -9, -9, -9, -9, -9}, 4, 3)
			part := AsStrided(base, []int{3, 2}, []int{1, 6}, 0)
			got := fill(part, options())
			require.Same(t, part, got)
			require.Equal(t, read(t, plain), read(t, part))
			for i, v := range read(t, base) {
				if i/3 == 1 || i/3 == 3 {
					require.Equal(t, -9.0, v)
				}
			}
		})
	}
}

func TestRandomErrors(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3})
	leaf := core.FromSlice([]float32{1, 2, 3}).SetRequiresGrad(true)
	for want, y := range map[string]*core.Tensor{
		"randint: the range must not be empty, got [3, 3)":                                                  Randint(3, 3, 2),
		"randint: uint8 holds the integers from 0 to 255, got [0, 257)":                                     RandintWith(0, 257, []int{2}, RandomOptions{DType: new(core.Uint8)}),
		"rand: the result must be of a floating-point or complex dtype, got int64":                          RandWith([]int{2}, RandomOptions{DType: new(core.Int64)}),
		"randperm: the length must not be negative, got -1":                                                 Randperm(-1),
		"uniform_: the range must be finite and not reversed, got [2, 1)":                                   UniformInPlace(x, 2, 1, RandomOptions{}),
		"normal_: the standard deviation must not be negative, got NaN":                                     NormalInPlace(x, 0, math.NaN(), RandomOptions{}),
		"normal_: the tensor to fill must be floating point, got int64":                                     NormalInPlace(core.FromSlice([]int64{1}), 0, 1, RandomOptions{}),
		"uniform_: a leaf that requires a gradient cannot be changed in place while gradients are recorded": UniformInPlace(leaf, 0, 1, RandomOptions{}),
		"bernoulli_: the probability must be in [0, 1], got 1.5":                                            BernoulliInPlace(x, core.Num(1.5), RandomOptions{}),
		"bernoulli_: the probability must broadcast to the tensor, got [2 3] and [3]":                       BernoulliInPlace(x, Rand(2, 3), RandomOptions{}),
		"multinomial: cannot draw 4 of 3 positions":                                                         Multinomial(x, 4, false, RandomOptions{}),
		"multinomial: the weights must be of shape [m] or [rows, m], m > 0, got [1 2 3]":                    Multinomial(Rand(1, 2, 3), 1, true, RandomOptions{}),
		"multinomial: the weights must be floating point, got int64":                                        Multinomial(core.FromSlice([]int64{1}), 1, true, RandomOptions{}),
	} {
		require.EqualError(t, y.Err(), want)
	}
	require.Equal(t, []float64{1, 2, 3}, read(t, x))
	_, err := core.Values[float64](Bernoulli(x, RandomOptions{}))
	require.EqualError(t, err, "bernoulli: the probability at element 1 is outside [0, 1]")
	v := read(t, Multinomial(core.FromSlice([]float32{0, 3, 0, 1}), 2, false, RandomOptions{}))
	require.ElementsMatch(t, []float64{1, 3}, v)
}
