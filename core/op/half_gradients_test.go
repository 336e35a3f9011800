package op_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// halves has the 16-bit floating-point dtypes, each with the error of rounding 1 and the largest number.
var halves = []struct {
	core.DType
	rounding, largest float64
}{{core.Float16, 0x1p-11, 65504}, {core.BFloat16, 0x1p-8, 0x1p127}}

// TestGradientsOfHalvesAgreeWithFloat64 compares the gradients of halves with those of the same numbers in float64, also where the
// numbers are large, or differ by little. A derivative that takes the rounded result for the result, as in exp(x - y), is off by far
// more than the roundings of what it returns.
func TestGradientsOfHalvesAgreeWithFloat64(t *testing.T) {
	moves := map[string]func(x *core.Tensor) *core.Tensor{
		"as they are": func(x *core.Tensor) *core.Tensor { return x },
		"times 20":    func(x *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(20)) },
		"plus 100":    func(x *core.Tensor) *core.Tensor { return op.Add(x, core.Num(100)) },
	}
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if r.NoGrad != "" {
			return
		}
		for name, move := range moves {
			// The derivative of attention multiplies a difference of sums, one of them of the result's elements, by all keys.
			if name != "as they are" && (coretest.Race || r.Name == "scaled_dot_product_attention") {
				continue
			}
			for _, d := range halves {
				if s.DTypes != nil && !slices.Contains(s.DTypes, d.DType) {
					continue
				}
				m := newMaker(r.Name+s.Name, d.DType, contiguous, true)
				args := m.arguments(s)
				rounded, exact := slices.Clone(m.leaves), slices.Clone(m.leaves)
				for i, x := range m.leaves {
					if x.DType() == d.DType {
						moved := move(x.Detach())
						rounded[i] = moved.Detach().SetRequiresGrad(x.RequiresGrad())
						exact[i] = op.To(moved, core.Float64).SetRequiresGrad(x.RequiresGrad())
					}
				}
				bound := 10 * d.rounding * loose(s)
				var outputs, weights, outputs64, weights64 []*core.Tensor
				results, results64 := m.apply(r.Call, args, rounded), m.apply(r.Call, args, exact)
				known := true
				for i, o := range results {
					// What is too large, or right in few digits, has a gradient of which as little is known.
					if known = known && holdable(results64[i], d.largest) && agrees(results64[i], o, bound); !known {
						break
					}
					if o.RequiresGrad() && o.Numel() > 0 {
						w := op.To(m.weights(o.Shape()), o.DType())
						outputs, weights = append(outputs, o), append(weights, w)
						outputs64, weights64 = append(outputs64, results64[i]), append(weights64, op.To(w, results64[i].DType()))
					}
				}
				if !known || len(outputs) == 0 {
					continue
				}
				got, err := autograd.Grad(outputs, requiring(rounded), weights, autograd.Options{AllowUnused: true})
				if kind, ok := core.KindOf(err); ok && kind == core.NotImplemented {
					continue
				}
				require.NoError(t, err)
				want, err := autograd.Grad(outputs64, requiring(exact), weights64, autograd.Options{AllowUnused: true})
				require.NoError(t, err)
				for i, g := range got {
					if g != nil && holdable(want[i], d.largest) && !agrees(want[i], g, bound) {
						require.Failf(t, "a wrong gradient", "of input %d, %v, values %s: got %v, want %v", i, d.DType, name, values(t, g), values(t, want[i]))
					}
				}
			}
		}
	})
}

// holdable reports whether the elements of x are well below the largest number, so that what they are computed from may be too.
func holdable(x *core.Tensor, largest float64) bool {
	v, err := core.Values[float64](x)
	return err == nil && !slices.ContainsFunc(v, func(x float64) bool { return !(math.Abs(x) < largest/4) })
}

// agrees reports whether got is want within bound times its largest element, or 1.
func agrees(want, got *core.Tensor, bound float64) bool {
	w, err := core.Values[float64](want)
	g, gotErr := core.Values[float64](got)
	if err != nil || gotErr != nil {
		return false
	}
	scale := 1.0
	for _, x := range w {
		scale = max(scale, math.Abs(x))
	}
	for i, x := range w {
		if !(math.Abs(x-g[i]) <= bound*scale) {
			return false
		}
	}
	return true
}

// TestGradientsOfLongHalves takes lines that are long enough for a result to lose what a gradient needs: a total of 200 is right to
// within 0.5 in bfloat16, which an exponential makes a factor of 1.6.
func TestGradientsOfLongHalves(t *testing.T) {
	for name, c := range map[string]struct {
		f          func(x *core.Tensor) *core.Tensor
		mean, size float64
		n          int
	}{
		"logsumexp":         {func(x *core.Tensor) *core.Tensor { return op.LogSumExp(x, []int{1}, false) }, 200, 1, 40},
		"logsumexp of all":  {func(x *core.Tensor) *core.Tensor { return op.LogSumExp(x, nil, true) }, -300, 2, 40},
		"logcumsumexp":      {func(x *core.Tensor) *core.Tensor { return op.LogCumSumExp(x, 1) }, 200, 1, 40},
		"var":               {func(x *core.Tensor) *core.Tensor { return op.Var(x, []int{1}, 1, false) }, 200, 8, 40},
		"std":               {func(x *core.Tensor) *core.Tensor { return op.Std(x, nil, 1, false) }, 200, 8, 40},
		"prod":              {func(x *core.Tensor) *core.Tensor { return op.Prod(x, []int{1}, false) }, 40, 1, 3},
		"prod, scattered":   {scatteredProducts, 40, 1, 3},
		"log of the result": {func(x *core.Tensor) *core.Tensor { return op.Log(op.Std(x, []int{1}, 1, true)) }, -200, 8, 40},
	} {
		for _, d := range halves {
			for _, graph := range []bool{false, true} {
				core.Tidy(func() {
					x := op.To(normalNumbers(rand.New(rand.NewPCG(35, 36)), c.mean/c.size, 2, c.n), d.DType)
					x = op.Mul(x, core.Num(c.size))
					var grads [2]*core.Tensor
					for i, dtype := range []core.DType{d.DType, core.Float64} {
						in := op.To(x, dtype).Detach().SetRequiresGrad(true)
						g, err := autograd.Grad([]*core.Tensor{op.Sum(c.f(in), nil, false)}, []*core.Tensor{in}, nil, autograd.Options{CreateGraph: graph})
						require.NoError(t, err)
						require.Equal(t, dtype, g[0].DType())
						grads[i] = g[0]
					}
					got, want := values(t, grads[0]), values(t, grads[1])
					require.LessOrEqual(t, rmsError(got, want), 2*d.rounding, "%s, %v: got %v, want %v", name, d.DType, got, want)
				})
			}
		}
	}
}

// scatteredProducts returns the products of the rows of x.
func scatteredProducts(x *core.Tensor) *core.Tensor {
	into := op.Ones(x.Size(0), 1)
	return op.ScatterReduce(op.To(into, x.DType()), 1, op.To(op.Zeros(x.Shape()...), core.Int64), x, "prod", true)
}
