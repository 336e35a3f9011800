package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// CosineSimilarity returns the inner product of x1 and x2 along dim, which broadcast, over the product of their norms, each
// of which is at least eps.
func CosineSimilarity(x1, x2 *core.Tensor, dim int, eps float64) *core.Tensor {
	if parts := distributed(x1, x2); parts != nil {
		return handOn(parts, "cosine_similarity", x1, x2, dim, eps)
	}
	op := begin("cosine_similarity", &x1, &x2)
	op.floatTensor(x1)
	op.floatTensor(x2)
	shape := op.broadcast(x1, x2)
	if op.err == nil {
		d, err := core.WrapDim(op.name, dim, len(shape))
		op.check(err)
		dim = d - len(shape) // counted from the end, it is the same for both
	}
	if op.err == nil && len(shape) == 0 {
		op.failf(core.ShapeError, "want at least one dimension, got %s", shapes(x1, x2))
	}
	return op.compose(func() *core.Tensor {
		x, y := Expand(x1, shape...), Expand(x2, shape...)
		unit := func(t *core.Tensor) *core.Tensor {
			return Div(t, Maximum(VectorNorm(t, 2, []int{dim}, keep), core.Num(eps)))
		}
		return Sum(Mul(unit(x), unit(y)), []int{dim}, false)
	})
}

// PairwiseDistance returns the p-norm of x1 - x2 + eps along the last dimension.
func PairwiseDistance(x1, x2 *core.Tensor, p, eps float64, keepdim bool) *core.Tensor {
	if parts := distributed(x1, x2); parts != nil {
		return handOn(parts, "pairwise_distance", x1, x2, p, eps, keepdim)
	}
	op := begin("pairwise_distance", &x1, &x2)
	op.tensors(x1, x2)
	op.countable("the first input", x1)
	op.countable("the second input", x2)
	if shape := op.broadcast(x1, x2); op.err == nil && len(shape) == 0 {
		op.failf(core.ShapeError, "want at least one dimension, got %s", shapes(x1, x2))
	}
	return op.compose(func() *core.Tensor {
		return VectorNorm(Add(Sub(widened(x1), widened(x2)), core.Num(eps)), p, []int{-1}, ReduceOptions{KeepDim: keepdim})
	})
}

// Dist returns the p-norm of x - y.
func Dist(x, y *core.Tensor, p float64) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "dist", x, y, p)
	}
	op := begin("dist", &x, &y)
	return op.compose(func() *core.Tensor { return VectorNorm(Sub(x, y), p, nil, ReduceOptions{}) })
}

func init() {
	other, p := Arg{Name: "other"}, Arg{Name: "p", Default: 2.0, Doc: "the order of the norm"}
	register("distance",
		Row{Name: "cosine_similarity", Func: CosineSimilarity,
			Args: []Arg{{Name: "x1"}, {Name: "x2"}, {Name: "dim", Default: 1}, {Name: "eps", Default: 1e-8, Doc: "the least norm to divide by"}},
			Doc:  "The inner products along a dimension over the products of the norms.",
			Samples: []Sample{
				{Name: "last", Args: []any{Shaped(3, 4), Shaped(3, 4), 1, 1e-8}, Loose: 2},
				{Name: "broadcast", Args: []any{Shaped(3, 1, 4), Shaped(2, 4), 2, 1e-8}, Loose: 2},
				{Name: "1-d", Args: []any{Shaped(5), Shaped(5), 0, 1e-8}, Loose: 2},
			}},
		Row{Name: "pairwise_distance", Func: PairwiseDistance,
			Args: []Arg{{Name: "x1"}, {Name: "x2"}, {Name: "p", Default: 2.0, Doc: "the order of the norm"},
				{Name: "eps", Default: 1e-6, Doc: "added to the differences"}, {Name: "keepdim", Default: false}},
			Doc: "The p-norm of x1 - x2 + eps along the last dimension.",
			Samples: []Sample{
				{Name: "2", Args: []any{Shaped(3, 4), far5(3, 4), 2.0, 1e-6, false}, Loose: 2},
				{Name: "1", Args: []any{Shaped(3, 4), far5(4), 1.0, 1e-6, true}, Loose: 2},
				{Name: "2.5", Args: []any{Shaped(4), far5(4), 2.5, 1e-6, false}, Loose: 4},
			}},
		Row{Name: "dist", Func: Dist, Args: inputAnd(other, p), Doc: "The p-norm of all elements of input - other.",
			Samples: []Sample{{Args: []any{Between(1, 2, 3, 4), Between(-2, -1, 4), 2.0}}, {Name: "1", Args: []any{Between(1, 2, 3), Between(-2, -1, 3), 1.0}}}},
		Row{Name: "cdist", Func: CDist, Elementwise: []*Elementwise{pairs1Grad, pairsMaxGrad}, Args: []Arg{{Name: "x1"}, {Name: "x2"}, p, {Name: "compute_mode", Field: "ComputeMode", Default: productsIfMany, Doc: "when Euclidean distances are computed from inner products"}}, Doc: "The distances of all pairs of rows.",
			Samples: []Sample{{Loose: 2, Args: []any{Between(1, 2, 3, 2), Between(-2, -1, 4, 2), 2.0, CDistOptions{}}}, {Name: "3", Loose: 2, Args: []any{Between(1, 2, 2, 3, 2), Between(-2, -1, 1, 2, 2), 3.0, CDistOptions{}}},
				{Name: "1", Args: []any{Between(1, 2, 3, 2), Between(-2, -1, 2, 2), 1.0, CDistOptions{}}}, {Name: "largest", Args: []any{DistinctOf(2, 3), far5(3, 3), math.Inf(1), CDistOptions{}}},
				{Name: "largest of numbers", Args: []any{T{Shape: []int{2, 2}, Values: []float64{math.NaN(), -2, 3, 1}, NoGrad: true}, T{Shape: []int{1, 2}, Values: []float64{1, 0}, NoGrad: true}, math.Inf(1), CDistOptions{}}},
				{Name: "empty", Args: []any{Shaped(0, 2), Shaped(3, 2), 1.0, CDistOptions{}}}}},
		Row{Name: "pdist", Func: PDist, Args: inputAnd(p), Doc: "The distances of each row and the later ones, in the order of the upper triangle.",
			Samples: []Sample{{Loose: 2, Args: []any{DistinctOf(4, 2), 2.0}}, {Name: "3", Loose: 4, Args: []any{DistinctOf(2, 3, 2), 3.0}},
				{Name: "1", Args: []any{DistinctOf(3, 2), 1.0}}, {Name: "one row", Args: []any{Shaped(1, 2), 2.0}}}},
	)
}
