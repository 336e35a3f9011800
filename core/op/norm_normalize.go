package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// Normalize divides x by its p-norm along dim, or by eps where the norm is smaller.
func Normalize(x *core.Tensor, p float64, dim int, eps float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "normalize", x, p, dim, eps)
	}
	op := begin("normalize", &x)
	if op.err == nil && !x.DType().IsComplex() {
		op.floatTensor(x)
	}
	dim = op.dim(dim, x)
	return op.compose(func() *core.Tensor {
		if x.Dim() == 0 {
			return Div(x, Maximum(Abs(x), core.Num(eps)))
		}
		return Div(x, Maximum(VectorNorm(x, p, []int{dim}, keep), core.Num(eps)))
	})
}

// renorm checks the arguments of [Renorm].
func (op *opContext) renorm(x *core.Tensor, p, maxNorm float64) {
	if op.err == nil && (x.Dim() < 2 || !(p > 0) || !(maxNorm >= 0)) {
		op.failf(core.ValueError, "want at least two dimensions, a positive order and a norm of at least 0, got shape %v, %v and %v", x.Shape(), p, maxNorm)
	}
}

// Renorm returns x with each part along dim whose p-norm is above maxNorm scaled down to it.
func Renorm(x *core.Tensor, p float64, dim int, maxNorm float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "renorm", x, p, dim, maxNorm)
	}
	op := begin("renorm", &x)
	if op.err == nil && !x.DType().IsComplex() {
		op.floatTensor(x)
	}
	dim = op.dim(dim, x)
	op.renorm(x, p, maxNorm)
	return op.compose(func() *core.Tensor {
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
	if parts := distributed(x); parts != nil {
		return handOn(parts, "renorm_", x, p, dim, maxNorm)
	}
	return replace("renorm_", func(x *core.Tensor) *core.Tensor { return Renorm(x, p, dim, maxNorm) }, x)
}

func init() {
	p := Arg{Name: "p", Default: 2.0, Doc: "the order of the norm"}
	register("norm",
		Row{Name: "normalize", Func: Normalize,
			Args: []Arg{{Name: "input"}, {Name: "p", Default: 2.0, Doc: "the order of the norm"}, {Name: "dim", Default: 1},
				{Name: "eps", Default: 1e-12, Doc: "the least norm to divide by"}},
			Doc: "The input divided by its p-norm along a dimension.",
			Samples: []Sample{
				{Name: "2", Args: []any{Shaped(3, 4), 2.0, 1, 1e-12}, Loose: 2},
				{Name: "1", Args: []any{Shaped(3, 4), 1.0, 0, 1e-12}, Loose: 2},
				{Name: "3", Args: []any{Shaped(2, 3, 4), 3.0, -1, 1e-12}, Loose: 4},
				{Name: "infinite", Args: []any{DistinctOf(3, 4), math.Inf(1), 1, 1e-12}, Loose: 2},
			}},
		Row{Name: "renorm", Func: Renorm, InPlace: RenormInPlace, Args: inputAnd(p, Arg{Name: "dim"}, Arg{Name: "maxnorm"}), Doc: "The tensor, of at least two dimensions, with each part along one of them whose p-norm is above maxnorm scaled down to it.",
			Samples: []Sample{{Args: []any{T{Shape: []int{2, 2}, Values: []float64{0.1, 0.2, 2, -3}}, 2.0, 0, 1.0}}, {Name: "columns", Args: []any{Between(1, 2, 2, 3), 1.0, -1, 0.5}}}},
	)
}
