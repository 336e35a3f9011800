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
	defer autocast("cov", &x).end()
	a := beginTensor("cov", x, o.FWeights, o.AWeights)
	if a.err == nil && !x.DType().IsFloat() {
		return compose("cov", func() *core.Tensor { return Cov(castTo(x, a.mode.Context().DefaultDType()), correction, o) })
	}
	if a.err == nil && x.Dim() > 2 {
		a.failf(core.ShapeError, "want at most two dimensions, got %v", x.Shape())
	}
	if a.err == nil && o.FWeights != nil && !o.FWeights.DType().IsInt() {
		a.failf(core.DTypeError, "fweights count observations: want integers, got %v", o.FWeights.DType())
	}
	if a.err == nil && o.AWeights != nil && !o.AWeights.DType().IsFloat() {
		a.failf(core.DTypeError, "aweights must be floating point, got %v", o.AWeights.DType())
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("cov", func() *core.Tensor {
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
				a.failf(core.ShapeError, "got weights of shape %v, want [%d]", given.Shape(), n)
				return a.fail()
			}
			if g := castTo(given, d); w == nil {
				w = g
			} else {
				w = Mul(w, g)
			}
		}
		var c *core.Tensor
		if w == nil {
			centred := Sub(rows, Mean(rows, []int{1}, true))
			c = Div(MatMul(centred, Transpose(centred, 0, 1)), core.Num(max(float64(n)-correction, 0)))
		} else {
			total := Sum(w, nil, false)
			centred := Sub(rows, Div(Sum(Mul(rows, w), []int{1}, true), total))
			count := Sub(total, core.Num(correction))
			if o.AWeights != nil && correction != 0 {
				count = Sub(total, Div(Mul(Sum(Mul(w, castTo(o.AWeights, d)), nil, false), core.Num(correction)), total))
			}
			c = Div(MatMul(Mul(centred, w), Transpose(centred, 0, 1)), Maximum(count, core.Num(0)))
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
		return Clamp(r, core.Num(-1), core.Num(1))
	})
}

// NanSum returns the sum of the elements of x over dims, or over all dimensions if there are none, that are not NaN.
func NanSum(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if x.Err() == nil && !x.DType().IsFloat() {
		return Sum(x, dims, keepdim)
	}
	return compose("nansum", func() *core.Tensor { return Sum(Where(IsNaN(x), core.Num(0), x), dims, keepdim) })
}

// NanMean returns the mean of the elements of x, which must be floating point, over dims, or over all dimensions if there
// are none, that are not NaN.
func NanMean(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	a := beginTensor("nanmean", x)
	a.floating("the input", x)
	if a.err != nil {
		return a.fail()
	}
	return compose("nanmean", func() *core.Tensor {
		count := Sum(castTo(LogicalNot(IsNaN(x)), statType(x.DType())), dims, keepdim)
		return castTo(Div(NanSum(x, dims, keepdim), count), x.DType())
	})
}

// Dist returns the p-norm of x - y.
func Dist(x, y *core.Tensor, p float64) *core.Tensor {
	defer autocast("dist", &x, &y).end()
	return compose("dist", func() *core.Tensor { return VectorNorm(Sub(x, y), p, nil, ReduceOptions{}) })
}

// CDist returns the p-norm of the difference of each row of x [*, n, m] with each of y [*, k, m], of shape [*, n, k]; the
// leading dimensions broadcast. It needs memory for n*k*m numbers.
func CDist(x, y *core.Tensor, p float64) *core.Tensor {
	defer autocast("cdist", &x, &y).end()
	a := beginGiven("cdist", x, y)
	a.matrices(x, y)
	a.floating("the input", x)
	if a.err == nil && x.Size(-1) != y.Size(-1) {
		a.failf(core.ShapeError, "last dimensions differ, got %s", shapes(x, y))
	}
	if a.err == nil && !(p >= 0) {
		a.failf(core.ValueError, "the norm's order must not be negative, got %v", p)
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("cdist", func() *core.Tensor {
		return VectorNorm(Sub(Unsqueeze(x, -2), Unsqueeze(y, -3)), p, []int{-1}, ReduceOptions{})
	})
}

// Renorm returns x with each part along dim whose p-norm is above maxNorm scaled down to it.
func Renorm(x *core.Tensor, p float64, dim int, maxNorm float64) *core.Tensor {
	defer autocast("renorm", &x).end()
	a := begin("renorm", x)
	a.floatTensor(x)
	dim = a.dim(dim, x)
	if a.err == nil && (x.Dim() < 2 || !(p > 0) || !(maxNorm >= 0)) {
		a.failf(core.ValueError, "want at least two dimensions, a positive order and a norm of at least 0, got shape %v, %v and %v", x.Shape(), p, maxNorm)
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("renorm", func() *core.Tensor {
		var rest []int
		for i := range x.Dim() {
			if i != dim {
				rest = append(rest, i)
			}
		}
		norm := VectorNorm(x, p, rest, keep)
		return Mul(x, Where(Gt(norm, core.Num(maxNorm)), Div(core.Num(maxNorm), Add(norm, core.Num(1e-7))), core.Num(1)))
	})
}

// RenormInPlace scales parts of x as [Renorm] does and returns it.
func RenormInPlace(x *core.Tensor, p float64, dim int, maxNorm float64) *core.Tensor {
	return replace("renorm_", func(x *core.Tensor) *core.Tensor { return Renorm(x, p, dim, maxNorm) }, x)
}

// Cross returns the cross products of vectors along dim, where x and y have size 3; their other dimensions broadcast.
func Cross(x, y *core.Tensor, dim int) *core.Tensor {
	defer autocast("cross", &x, &y).end()
	a := beginGiven("cross", x, y)
	shape := a.broadcast(x, y)
	if a.err == nil {
		var err error
		dim, err = core.WrapDim(a.name, dim, len(shape))
		a.check(err)
	}
	if a.err == nil && (len(shape) == 0 || x.Size(dim-len(shape)) != 3 || y.Size(dim-len(shape)) != 3) {
		a.failf(core.ShapeError, "want size 3 along dimension %d, got %s", dim, shapes(x, y))
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("cross", func() *core.Tensor {
		turn := func(t *core.Tensor, n int) *core.Tensor { return Roll(Expand(t, shape...), []int{-n}, []int{dim}) }
		return Sub(Mul(turn(x, 1), turn(y, 2)), Mul(turn(x, 2), turn(y, 1)))
	})
}

func init() {
	dims := Arg{Name: "dim", Optional: true, Doc: "the dimensions to reduce; None means all"}
	keepdim := Arg{Name: "keepdim", Default: false, Doc: "keep the reduced dimensions with size 1"}
	other, p := Arg{Name: "other"}, Arg{Name: "p", Default: 2.0, Doc: "the order of the norm"}
	over := func(x T, dims []int, keepdim bool) []any { return []any{x, dims, keepdim} }
	register("statistics",
		Row{Name: "cov", Func: Cov, Doc: "The covariance matrix of variables, given by rows.",
			Args: inputAnd(Arg{Name: "correction", Default: 1.0, Doc: "what the number of observations is lessened by"},
				Arg{Name: "fweights", Field: "FWeights", Optional: true, Doc: "how often each observation is there"},
				Arg{Name: "aweights", Field: "AWeights", Optional: true, Doc: "how much each observation matters"}),
			Samples: []Sample{{Loose: 4, Args: []any{Shaped(3, 5), 1.0}}, {Name: "vector", Loose: 4, Args: []any{Shaped(6), 0.0}}}},
		Row{Name: "corrcoef", Func: CorrCoef, Args: inputAnd(), Doc: "The correlation coefficients of variables, given by rows.",
			Samples: []Sample{{Loose: 8, Args: []any{T{Shape: []int{2, 4}, Values: []float64{1, -0.5, 0.25, 2, 0.5, 1.5, -1, 0.75}}}}}},
		Row{Name: "nansum", Func: NanSum, Args: inputAnd(dims, keepdim), Memory: true, Doc: "The sum of what is not NaN.", Samples: reductionSamples(Shaped, over, true)},
		Row{Name: "nanmean", Func: NanMean, Args: inputAnd(dims, keepdim), Memory: true, Doc: "The mean of what is not NaN.", Samples: reductionSamples(Shaped, over, false)},
		Row{Name: "dist", Func: Dist, Args: inputAnd(other, p), Doc: "The p-norm of all elements of input - other.",
			Samples: []Sample{{Args: []any{Between(1, 2, 3, 4), Between(-2, -1, 4), 2.0}}, {Name: "1", Args: []any{Between(1, 2, 3), Between(-2, -1, 3), 1.0}}}},
		Row{Name: "cdist", Func: CDist, Args: []Arg{{Name: "x1"}, {Name: "x2"}, p}, Doc: "The distances of all pairs of rows.",
			Samples: []Sample{{Loose: 2, Args: []any{Between(1, 2, 3, 2), Between(-2, -1, 4, 2), 2.0}}, {Name: "3", Loose: 2, Args: []any{Between(1, 2, 2, 3, 2), Between(-2, -1, 1, 2, 2), 3.0}},
				{Name: "empty", Args: []any{Shaped(0, 2), Shaped(3, 2), 1.0}}}},
		Row{Name: "renorm", Func: Renorm, InPlace: RenormInPlace, Args: inputAnd(p, Arg{Name: "dim"}, Arg{Name: "maxnorm"}), Doc: "The tensor, of at least two dimensions, with each part along one of them whose p-norm is above maxnorm scaled down to it.",
			Samples: []Sample{{Args: []any{T{Shape: []int{2, 2}, Values: []float64{0.1, 0.2, 2, -3}}, 2.0, 0, 1.0}}, {Name: "columns", Args: []any{Between(1, 2, 2, 3), 1.0, -1, 0.5}}}},
		Row{Name: "cross", Func: Cross, Args: inputAnd(other, Arg{Name: "dim", Default: -1}), Doc: "The cross products of vectors of size 3.",
			Samples: []Sample{{Args: []any{Shaped(2, 3), Shaped(2, 3), -1}}, {Name: "broadcast", Args: []any{Shaped(3, 2), Shaped(3, 1), 0}}}},
	)
}
