package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// CovOptions are the options of [Cov].
type CovOptions struct {
	// FWeights counts how often each observation is there; integers.
	FWeights *core.Tensor
	// AWeights says how much each observation matters.
	AWeights *core.Tensor
}

// Cov returns the covariance matrix of variables, the rows of x [variables, observations], or the variance of a single one. Sums
// are divided by the number of observations less the correction. Weights must not be negative.
// The result is of the dtype that x and AWeights promote to.
func Cov(x *core.Tensor, correction float64, o CovOptions) *core.Tensor {
	if parts := distributed(x, o.FWeights, o.AWeights); parts != nil {
		return handOn(parts, "cov", x, correction, o)
	}
	op := begin("cov", &x).with(o.FWeights, o.AWeights)
	if op.err == nil && !x.DType().IsFloat() && !x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return Cov(castTo(x, op.mode.Context().DefaultDType()), correction, o) })
	}
	if op.err == nil && x.Dim() > 2 {
		op.failf(core.ShapeError, "want at most two dimensions, got %v", x.Shape())
	}
	if op.err == nil && o.FWeights != nil && !o.FWeights.DType().IsInt() {
		op.failf(core.DTypeError, "fweights count observations: want integers, got %v", o.FWeights.DType())
	}
	if op.err == nil && o.AWeights != nil && !o.AWeights.DType().IsFloat() {
		op.failf(core.DTypeError, "aweights must be floating point, got %v", o.AWeights.DType())
	}
	return op.compose(func() *core.Tensor {
		d := x.DType()
		if o.AWeights != nil {
			d = core.Promote(d, o.AWeights.DType())
		}
		rows := castTo(x, d)
		if x.Dim() < 2 {
			rows = Reshape(rows, 1, x.Numel())
		}
		n := rows.Size(1)
		var w *core.Tensor
		for _, given := range []*core.Tensor{o.FWeights, o.AWeights} {
			if given == nil {
				continue
			}
			if !slices.Equal(given.Shape(), []int{n}) {
				op.failf(core.ShapeError, "got weights of shape %v, want [%d]", given.Shape(), n)
				return op.fail()
			}
			if g := castTo(given, d.Part()); w == nil {
				w = g
			} else {
				w = Mul(w, g)
			}
		}
		var c *core.Tensor
		if w == nil {
			centred := Sub(rows, Mean(rows, []int{1}, true))
			c = Div(MatMul(centred, adjoint(centred)), core.Num(max(float64(n)-correction, 0)))
		} else {
			total := Sum(w, nil, false)
			centred := Sub(rows, Div(Sum(Mul(rows, w), []int{1}, true), total))
			count := Sub(total, core.Num(correction))
			if o.AWeights != nil && correction != 0 {
				count = Sub(total, Div(Mul(Sum(Mul(w, castTo(o.AWeights, d.Part())), nil, false), core.Num(correction)), total))
			}
			c = Div(MatMul(Mul(centred, w), adjoint(centred)), Maximum(count, core.Num(0)))
		}
		if rows.Size(0) == 1 {
			return Reshape(c)
		}
		return c
	})
}

// CorrCoef returns the correlation coefficients of variables, the rows of x [variables, observations], or 1 for a single one.
func CorrCoef(x *core.Tensor) *core.Tensor {
	return compose("corrcoef", func() *core.Tensor {
		c := Cov(x, 1, CovOptions{})
		if c.Err() != nil {
			return c
		}
		if c.Dim() == 0 {
			return Div(c, c)
		}
		deviations := Sqrt(Diagonal(c, 0, 0, 1))
		r := Div(Div(c, Unsqueeze(deviations, 1)), Unsqueeze(deviations, 0))
		clamp := func(t *core.Tensor) *core.Tensor { return Clamp(t, core.Num(-1), core.Num(1)) }
		if r.DType().IsComplex() {
			return Complex(clamp(Real(r)), clamp(Imag(r)))
		}
		return clamp(r)
	})
}

func init() {
	register("statistics",
		Row{Name: "cov", Func: Cov, Doc: "The covariance matrix of variables, given by rows.",
			Args: inputAnd(Arg{Name: "correction", Default: 1.0, Doc: "what the number of observations is lessened by"},
				Arg{Name: "fweights", Field: "FWeights", Optional: true, Doc: "how often each observation is there"},
				Arg{Name: "aweights", Field: "AWeights", Optional: true, Doc: "how much each observation matters"}),
			Samples: []Sample{{Loose: 4, Args: []any{Shaped(3, 5), 1.0}}, {Name: "vector", Loose: 4, Args: []any{Shaped(6), 0.0}}}},
		Row{Name: "corrcoef", Func: CorrCoef, Args: inputAnd(), Doc: "The correlation coefficients of variables, given by rows.",
			Samples: []Sample{{Loose: 8, Args: []any{T{Shape: []int{2, 4}, Values: []float64{1, -0.5, 0.25, 2, 0.5, 1.5, -1, 0.75}}}}}},
	)
}
