package op

import "github.com/plait-ml/plait/core"

// DiffOptions are the options of [Diff].
type DiffOptions struct {
	// Prepend and Append are joined to the tensor along the dimension first.
	Prepend, Append *core.Tensor
}

// Diff returns the differences of neighbours along dim, n times over. Those of bools are whether they differ.
func Diff(x *core.Tensor, n, dim int, o DiffOptions) *core.Tensor {
	if parts := distributed(x, o.Prepend, o.Append); parts != nil {
		return handOn(parts, "diff", x, n, dim, o)
	}
	op := begin("diff", &x, optional(&o.Prepend), optional(&o.Append))
	dim = op.dim(dim, x)
	if op.err == nil && (x.Dim() == 0 || n < 0) {
		op.failf(core.ValueError, "got order %d and shape %v, want an order of at least 0 and at least one dimension", n, x.Shape())
	}
	return op.compose(func() *core.Tensor {
		if n == 0 {
			return Clone(x) // what would be joined to it does not count
		}
		var parts []*core.Tensor
		for _, t := range []*core.Tensor{o.Prepend, x, o.Append} {
			if t != nil {
				parts = append(parts, t)
			}
		}
		r := x
		if len(parts) > 1 {
			r = Cat(parts, dim)
		}
		if r.Err() == nil {
			n = min(n, r.Size(dim)) // after as many nothing is left
		}
		for ; n > 0 && r.Err() == nil; n-- {
			length := max(r.Size(dim)-1, 0)
			next, before := Narrow(r, dim, r.Size(dim)-length, length), Narrow(r, dim, 0, length)
			if r.DType() == core.Bool {
				r = Ne(next, before)
			} else {
				r = Sub(next, before)
			}
		}
		return r
	})
}

// Trapezoid returns the integral of y along dim by the trapezoidal rule, for samples dx apart or, if x is not nil, at x, of
// y's shape or a vector along dim.
func Trapezoid(y, x *core.Tensor, dx float64, dim int) *core.Tensor {
	if parts := distributed(y, x); parts != nil {
		return handOn(parts, "trapezoid", y, x, dx, dim)
	}
	return compose("trapezoid", func() *core.Tensor {
		if x == nil && y.Err() == nil && y.DType().IsFloat() && y.Dim() > 0 {
			if d, err := core.WrapDim("trapezoid", dim, y.Dim()); err == nil && y.Size(d) > 1 {
				n := y.Size(d)
				ends := Mul(Add(Select(y, d, 0), Select(y, d, n-1)), core.Num(0.5)) // which halves count, before and behind whole samples
				return Mul(Add(Sum(Narrow(y, d, 1, n-2), []int{d}, false), ends), core.Num(dx))
			}
		}
		areas, dim := trapezoids("trapezoid", y, x, dx, dim)
		return Sum(areas, []int{dim}, false)
	})
}

// CumulativeTrapezoid returns the running integrals of y along dim by the trapezoidal rule; see [Trapezoid].
func CumulativeTrapezoid(y, x *core.Tensor, dx float64, dim int) *core.Tensor {
	if parts := distributed(y, x); parts != nil {
		return handOn(parts, "cumulative_trapezoid", y, x, dx, dim)
	}
	return compose("cumulative_trapezoid", func() *core.Tensor {
		areas, dim := trapezoids("cumulative_trapezoid", y, x, dx, dim)
		return CumSum(areas, dim)
	})
}

// trapezoids returns the areas between neighbouring samples.
func trapezoids(name string, y, x *core.Tensor, dx float64, dim int) (*core.Tensor, int) {
	op := begin(name, &y, optional(&x))
	dim = op.dim(dim, y)
	if op.err == nil && y.Dim() == 0 {
		op.failf(core.ShapeError, "want at least one dimension, got a 0-d tensor")
	}
	if op.err != nil {
		return op.fail(), 0
	}
	length := max(y.Size(dim)-1, 0)
	sum := Add(Narrow(y, dim, y.Size(dim)-length, length), Narrow(y, dim, 0, length))
	if x == nil {
		return Mul(sum, core.Num(dx/2)), dim
	}
	if x.Dim() == 1 && y.Dim() > 1 {
		shape := make([]int, y.Dim())
		for i := range shape {
			shape[i] = 1
		}
		shape[dim] = x.Numel()
		x = Reshape(x, shape...)
	}
	return Div(Mul(sum, Diff(x, 1, dim-y.Dim(), DiffOptions{})), core.Num(2)), dim
}

func init() {
	dim, dx := Arg{Name: "dim", Default: -1, Doc: "the dimension"}, Arg{Name: "dx", Default: 1.0, Doc: "the distance of samples, without x"}
	rule := []Arg{{Name: "y"}, {Name: "x", Optional: true}, dx, dim}
	integrals := []Sample{
		{Args: []any{Shaped(3, 4), nil, 0.5, -1}}, {Name: "vector", Args: []any{Shaped(3, 4), Shaped(4), 1.0, -1}},
		{Name: "first", Args: []any{Shaped(3, 4), Shaped(3), 1.0, 0}}, {Name: "points", Args: []any{Shaped(2, 3), Shaped(2, 3), 1.0, 1}},
		{Name: "one", Args: []any{Shaped(1, 3), nil, 1.0, 0}},
	}
	register("scan",
		Row{Name: "diff", Func: Diff, Memory: true, Doc: "The differences of neighbours along a dimension.",
			Args: inputAnd(Arg{Name: "n", Default: 1, Doc: "how often"}, dim, Arg{Name: "prepend", Field: "Prepend", Optional: true},
				Arg{Name: "append", Field: "Append", Optional: true}),
			Samples: []Sample{{Args: []any{Shaped(3, 4), 1, -1}}, {Name: "twice", Args: []any{Shaped(5, 2), 2, 0}},
				{Name: "all", Args: []any{Shaped(3), 1 << 62, 0}}, {Name: "never", Args: []any{Shaped(3), 0, 0}}, {Name: "one", Args: []any{Shaped(2, 1), 1, 1}},
				{Name: "bools", Args: []any{bits(6), 1, 0}}}},
		Row{Name: "trapezoid", Func: Trapezoid, Args: rule, Samples: integrals, Doc: "The integral along a dimension by the trapezoidal rule."},
		Row{Name: "cumulative_trapezoid", Func: CumulativeTrapezoid, Args: rule, Samples: integrals,
			Doc: "The running integrals along a dimension by the trapezoidal rule."},
	)
}
