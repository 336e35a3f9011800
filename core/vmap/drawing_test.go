package vmap_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/vmap"
)

// draws are functions of a tensor [4, 2, 2, 2, 2] that draw numbers.
func draws() map[string]func(x *core.Tensor) *core.Tensor {
	type drawn = func(x *core.Tensor) *core.Tensor
	o := op.RandomOptions{}
	filled := func(fill drawn) drawn { return func(x *core.Tensor) *core.Tensor { return fill(op.Clone(x)) } }
	positive := func(x *core.Tensor) *core.Tensor { return op.Sigmoid(x) }
	return map[string]drawn{
		"rand":         func(x *core.Tensor) *core.Tensor { return op.Mul(x, op.Randn(2)) },
		"randperm":     func(x *core.Tensor) *core.Tensor { return op.Mul(x, op.Unsqueeze(op.Randperm(2), 1)) },
		"rand_like":    func(x *core.Tensor) *core.Tensor { return op.RandLike(x, o) },
		"randn_like":   func(x *core.Tensor) *core.Tensor { return op.RandnLike(x, o) },
		"randint_like": func(x *core.Tensor) *core.Tensor { return op.RandintLike(x, 0, 100, o) },
		"bernoulli":    func(x *core.Tensor) *core.Tensor { return op.Bernoulli(positive(x), o) },
		"poisson":      func(x *core.Tensor) *core.Tensor { return op.Poisson(op.Mul(positive(x), core.Num(20)), o) },
		"multinomial":  func(x *core.Tensor) *core.Tensor { return op.Multinomial(op.Reshape(positive(x), -1), 3, false, o) },
		"multinomial of rows": func(x *core.Tensor) *core.Tensor {
			return op.Multinomial(op.Reshape(positive(x), 4, -1), 3, true, o)
		},
		"a generator of its own": func(x *core.Tensor) *core.Tensor {
			g := core.NewGenerator(5)
			return op.RandLike(x, op.RandomOptions{Generator: g})
		},
		"uniform_":            filled(func(x *core.Tensor) *core.Tensor { return op.UniformInPlace(x, 0, 1, o) }),
		"normal_":             filled(func(x *core.Tensor) *core.Tensor { return op.NormalInPlace(x, 0, 1, o) }),
		"exponential_":        filled(func(x *core.Tensor) *core.Tensor { return op.ExponentialInPlace(x, 1, o) }),
		"geometric_":          filled(func(x *core.Tensor) *core.Tensor { return op.GeometricInPlace(x, 0.25, o) }),
		"trunc_normal_":       filled(func(x *core.Tensor) *core.Tensor { return op.TruncNormalInPlace(x, 0, 1, -1, 1, o) }),
		"random_":             filled(func(x *core.Tensor) *core.Tensor { return op.RandomInPlace(x, 0, 100, o) }),
		"bernoulli_":          filled(func(x *core.Tensor) *core.Tensor { return op.BernoulliInPlace(x, core.Num(0.5), o) }),
		"bernoulli_ of a row": filled(func(x *core.Tensor) *core.Tensor { return op.BernoulliInPlace(x, positive(op.Select(x, 0, 0)), o) }),
		"dropout":             func(x *core.Tensor) *core.Tensor { return op.Dropout(x, 0.3, true) },
		"dropout of all":      func(x *core.Tensor) *core.Tensor { return op.Dropout(x, 1, true) },
		"dropout1d":           func(x *core.Tensor) *core.Tensor { return op.Dropout1d(op.Reshape(x, 4, 4, 4), 0.3, true) },
		"dropout2d":           func(x *core.Tensor) *core.Tensor { return op.Dropout2d(op.Reshape(x, 4, 4, 2, 2), 0.3, true) },
		"dropout3d":           func(x *core.Tensor) *core.Tensor { return op.Dropout3d(x, 0.3, true) },
		"alpha_dropout":       func(x *core.Tensor) *core.Tensor { return op.AlphaDropout(x, 0.3, true) },
		"feature_alpha_dropout": func(x *core.Tensor) *core.Tensor {
			return op.FeatureAlphaDropout(x, 0.3, true)
		},
		"rrelu":  func(x *core.Tensor) *core.Tensor { return op.Rrelu(x, 0.1, 0.4, true) },
		"rrelu_": filled(func(x *core.Tensor) *core.Tensor { return op.RreluInPlace(x, 0.1, 0.4, true) }),
		"two of them": func(x *core.Tensor) *core.Tensor {
			return op.Add(op.Dropout(x, 0.3, true), op.Mul(x, op.RandLike(x, o)))
		},
		"attention": func(x *core.Tensor) *core.Tensor {
			x = op.Reshape(x, 2, 2, 4, 4)
			return op.ScaledDotProductAttention(x, x, x, op.AttentionOptions{DropoutP: 0.4})
		},
	}
}

// TestTheSameNumbers compares parts that draw the same numbers with calls that each start with the same seed: results, gradients, and where the
// generator stands in the end.
func TestTheSameNumbers(t *testing.T) {
	for name, f := range draws() {
		for _, d := range []core.DType{core.Float64, core.Float32, core.BFloat16} {
			core.Tidy(func() {
				core.ManualSeed(3)
				x := op.To(op.Movedim(op.Randn(4, 2, 2, 2, 2, size), []int{5}, []int{0}), d).Detach()
				x.SetRequiresGrad(true)
				list := []*core.Tensor{x}
				generator := core.CurrentContext().Generator(x.Device())
				var after uint64
				results := looped(list, 1, func(own []*core.Tensor) []*core.Tensor {
					core.ManualSeed(11)
					y := f(own[0])
					_, after = generator.State()
					return []*core.Tensor{y}
				})
				require.NotNil(t, results, name)
				want, err := outcome(results, list)
				require.NoError(t, err, name)
				core.ManualSeed(11)
				l := vmap.Enter(nil, size, vmap.Same)
				defer l.Exit()
				y := f(l.Wrap(x))
				require.NoError(t, y.Err(), name)
				_, now := generator.State()
				require.Equal(t, after, now, name)
				got, err := outcome([]*core.Tensor{l.Unwrap(y)}, list)
				require.NoError(t, err, name)
				tolerance := map[core.DType]float64{core.Float64: 1e-12, core.Float32: 1e-6, core.BFloat16: 0.02}[d]
				for i := range want {
					for _, list := range [][]*core.Tensor{got, want} {
						if list[i] == nil { // no gradient is one of zeros
							list[i] = op.ZerosLike(x, op.TensorOptions{})
						}
					}
					a, err := read(got[i])
					require.NoError(t, err)
					b, err := read(want[i])
					require.NoError(t, err)
					require.Len(t, a, len(b))
					for j := range b {
						require.InDelta(t, b[j], a[j], tolerance*(1+math.Abs(b[j])), "%s in %v", name, d)
					}
				}
			})
		}
	}
}

// TestNumbersAtTwoLevels counts which of 3 x 2 parts draw the same numbers, from a tensor that is batched at both levels, at one, or at none.
func TestNumbersAtTwoLevels(t *testing.T) {
	whole := op.Ones(3, 2, 16)
	draw := map[string]func(x *core.Tensor) *core.Tensor{
		"rand_like": func(x *core.Tensor) *core.Tensor { return op.RandLike(x, op.RandomOptions{}) },
		"dropout":   func(x *core.Tensor) *core.Tensor { return op.Dropout(x, 0.5, true) },
	}
	for name, f := range draw {
		for _, of := range []string{"both", "the outer", "the inner", "none"} {
			for _, outside := range []vmap.Draws{vmap.Different, vmap.Same} {
				for _, inside := range []vmap.Draws{vmap.Different, vmap.Same} {
					core.Tidy(func() {
						core.ManualSeed(7)
						outer := vmap.Enter(nil, 3, outside)
						defer outer.Exit()
						inner := vmap.Enter(outer, 2, inside)
						defer inner.Exit()
						x := op.Select(op.Select(whole, 0, 0), 0, 0)
						switch of {
						case "both":
							x = inner.Wrap(outer.Wrap(whole))
						case "the outer":
							x = outer.Wrap(op.Select(whole, 1, 0))
						case "the inner":
							x = inner.Wrap(op.Select(whole, 0, 0))
						}
						y := f(x)
						require.NoError(t, y.Err())
						y = outer.Unwrap(outer.Batched(inner.Unwrap(inner.Batched(y))))
						values, err := read(y)
						require.NoError(t, err)
						rows := slices.Collect(slices.Chunk(values, 16))
						require.Len(t, rows, 6)
						for i, row := range rows {
							for j, other := range rows[:i] {
								same := (i/2 == j/2 || outside == vmap.Same) && (i%2 == j%2 || inside == vmap.Same)
								require.Equal(t, same, slices.Equal(row, other), "%s of a tensor batched at %s, %v and %v: parts %d and %d", name, of, outside, inside, i, j)
							}
						}
					})
				}
			}
		}
	}
}
