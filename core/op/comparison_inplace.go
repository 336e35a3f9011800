package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// EqInPlace replaces x by 1 where it equals y and by 0 elsewhere, and returns it. No gradient passes, as for the others.
func EqInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "eq_", x, y)
	}
	return compareInPlace("eq_", Eq, x, y)
}

// NeInPlace replaces x by 1 where it differs from y and by 0 elsewhere, and returns it.
func NeInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "ne_", x, y)
	}
	return compareInPlace("ne_", Ne, x, y)
}

// LtInPlace replaces x by 1 where x < y and by 0 elsewhere, and returns it.
func LtInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "lt_", x, y)
	}
	return compareInPlace("lt_", Lt, x, y)
}

// LeInPlace replaces x by 1 where x <= y and by 0 elsewhere, and returns it.
func LeInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "le_", x, y)
	}
	return compareInPlace("le_", Le, x, y)
}

// GtInPlace replaces x by 1 where x > y and by 0 elsewhere, and returns it.
func GtInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "gt_", x, y)
	}
	return compareInPlace("gt_", Gt, x, y)
}

// GeInPlace replaces x by 1 where x >= y and by 0 elsewhere, and returns it.
func GeInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "ge_", x, y)
	}
	return compareInPlace("ge_", Ge, x, y)
}

func compareInPlace(name string, compare func(x, y *core.Tensor) *core.Tensor, x, y *core.Tensor) *core.Tensor {
	return replace(name, func(x *core.Tensor) *core.Tensor { return compare(x, y) }, x, y)
}

// AllClose returns, as a bool without dimensions, whether all elements of x and y are close, as [IsClose] has it.
func AllClose(x, y *core.Tensor, rtol, atol float64, equalNaN bool) *core.Tensor {
	return compose("allclose", func() *core.Tensor { return All(IsClose(x, y, rtol, atol, equalNaN), nil, false) })
}

// Equal returns, as a bool without dimensions, whether x and y have the same shape and equal elements.
func Equal(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "equal", x, y)
	}
	op := begin("equal", &x, &y)
	return op.compose(func() *core.Tensor {
		if !slices.Equal(x.Shape(), y.Shape()) {
			d := core.Bool
			return Full([]int{}, core.IntNum(0), TensorOptions{DType: &d, Device: x.Device()})
		}
		return All(Eq(x, y), nil, false)
	})
}

// IsIn returns where elements of x are among those of test, or, with invert, where they are not. A NaN is not among any.
func IsIn(x, test *core.Tensor, invert bool) *core.Tensor {
	if parts := distributed(x, test); parts != nil {
		return handOn(parts, "isin", x, test, invert)
	}
	op := begin("isin", &x, &test)
	return op.compose(func() *core.Tensor {
		d := core.ResultType(x, test)
		in, known := castTo(x.Detach(), d), Ravel(castTo(test.Detach(), d))
		if d == core.Bool {
			in, known = castTo(in, core.Uint8), castTo(known, core.Uint8)
		}
		if known.Numel() == 0 {
			b := core.Bool
			return Full(x.Shape(), core.IntNum(contract.Flag(invert)), TensorOptions{DType: &b, Device: x.Device()})
		}
		sorted, _ := Sort(known, 0, SortOptions{})
		at := Clamp(SearchSorted(sorted, in, SearchOptions{}), nil, core.IntNum(int64(known.Numel()-1)))
		found := Eq(Take(sorted, at), in)
		if invert {
			return LogicalNot(found)
		}
		return found
	})
}

func init() {
	rtol, atol := Arg{Name: "rtol", Default: 1e-5}, Arg{Name: "atol", Default: 1e-8}
	const why = "the result is a bool"
	register("comparison",
		Row{Name: "allclose", Func: AllClose, NoGrad: why, Memory: true, Doc: "Whether all elements are close.",
			Args:    inputAnd(Arg{Name: "other"}, rtol, atol, Arg{Name: "equal_nan", Default: false}),
			Samples: []Sample{{Args: []any{steps(3, 2), steps(3, 2), 1e-5, 1e-8, false}}, {Name: "far", Args: []any{steps(3, 2), steps(2), 1e-5, 1e-8, false}}}},
		Row{Name: "equal", Func: Equal, NoGrad: why, Memory: true, Doc: "Whether two tensors have the same shape and equal elements.",
			Args:    inputAnd(Arg{Name: "other"}),
			Samples: []Sample{{Args: []any{steps(3, 2), steps(3, 2)}}, {Name: "shapes", Args: []any{steps(3, 2), steps(2)}}, {Name: "empty", Args: []any{Shaped(0), Shaped(0)}}}},
		Row{Name: "isin", Func: IsIn, NoGrad: why, Doc: "Where elements are among those of another tensor.",
			Args: []Arg{{Name: "elements"}, {Name: "test_elements"}, {Name: "invert", Default: false}},
			Samples: []Sample{{Args: []any{steps(3, 4), steps(2), false}}, {Name: "inverted", Args: []any{wholes(5), wholes(2, 1), true}},
				{Name: "among none", Args: []any{steps(3), Shaped(0), false}}}},
	)
}
