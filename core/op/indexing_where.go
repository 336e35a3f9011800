package op

import "github.com/plait-ml/plait/core"

var whereOp = elementwise("where", "condition logic, x, y", "where(condition, x, y)",
	"", "where(condition, grad, 0)", "where(condition, 0, grad)").overComplex("where(condition, xr, yr), where(condition, xi, yi)")

var maskedFillOp = elementwise("masked_fill", "x, mask logic, value", "where(mask, value, x)",
	"where(mask, 0, grad)", "", "where(mask, grad, 0)").overComplex("where(mask, valuer, xr), where(mask, valuei, xi)")

// condition returns an error unless c can be one.
func condition(name string, c *core.Tensor) error {
	if c != nil && c.Err() == nil && c.DType() != core.Bool {
		return core.Errorf(core.DTypeError, name, "the condition must be bool, got %v", c.DType())
	}
	return nil
}

// Where returns x where c, of bools or uint8, is true and y elsewhere.
func Where(c, x, y *core.Tensor) *core.Tensor {
	if parts := distributed(c, x, y); parts != nil {
		return handOn(parts, "where", c, x, y)
	}
	if c != nil && c.Err() == nil && c.DType() == core.Uint8 {
		return compose("where", func() *core.Tensor { return Where(castTo(c, core.Bool), x, y) })
	}
	if err := condition("where", c); err != nil {
		return core.ErrorTensor(err)
	}
	for _, pair := range [][2]*core.Tensor{{x, y}, {y, x}} {
		t, n := pair[0], pair[1]
		if t == nil || n == nil || t.Err() != nil || t.IsNumber() || n.DType() != core.Int64 {
			continue
		}
		if err := holds("where", t.DType(), n); err != nil {
			return core.ErrorTensor(err)
		}
	}
	return whereOp.apply(nil, c, x, y)
}

// fits returns an error unless a tensor of x's dtype can hold value, which has no dimensions.
func fits(name string, x, value *core.Tensor) error {
	switch {
	case x == nil || value == nil || x.Err() != nil || value.Err() != nil:
		return nil
	case value.Dim() != 0:
		return core.Errorf(core.ShapeError, name, "the value must be a number or a 0-d tensor, got shape %v", value.Shape())
	case x.DType() != core.Bool && class(value.DType()) > class(x.DType()):
		return core.Errorf(core.DTypeError, name, "a tensor of %v cannot hold a value of %v", x.DType(), value.DType())
	}
	return holds(name, x.DType(), value)
}

// truth returns what a tensor of x's dtype is filled with for value: for bools whether it is not 0.
func truth(x, value *core.Tensor) *core.Tensor {
	switch {
	case x == nil || value == nil || x.Err() != nil || value.Err() != nil || x.DType() != core.Bool || value.DType() == core.Bool:
		return value
	case value.IsNumber():
		return core.BoolNum(value.Number().Float != 0)
	}
	return castTo(value, core.Bool)
}

// MaskedFill returns x with value, a number or a 0-d tensor, where mask, of bools, is true.
func MaskedFill(x, mask, value *core.Tensor) *core.Tensor {
	if parts := distributed(x, mask, value); parts != nil {
		return handOn(parts, "masked_fill", x, mask, value)
	}
	if err := condition("masked_fill", mask); err != nil {
		return core.ErrorTensor(err)
	}
	if err := fits("masked_fill", x, value); err != nil {
		return core.ErrorTensor(err)
	}
	if filled := truth(x, value); filled != value {
		defer filled.Release()
		value = filled
	}
	return maskedFillOp.apply(nil, x, mask, value)
}

// MaskedFillInPlace puts value, a number or a 0-d tensor, where mask, of bools, is true and returns x.
func MaskedFillInPlace(x, mask, value *core.Tensor) *core.Tensor {
	if parts := distributed(x, mask, value); parts != nil {
		return handOn(parts, "masked_fill_", x, mask, value)
	}
	if err := condition("masked_fill_", mask); err != nil {
		return core.ErrorTensor(err)
	}
	if err := fits("masked_fill_", x, value); err != nil {
		return core.ErrorTensor(err)
	}
	if filled := truth(x, value); filled != value {
		defer filled.Release()
		value = filled
	}
	return maskedFillOp.applyInPlace(nil, x, mask, value)
}

func init() {
	register("indexing",
		Row{
			Name: "where", Doc: "Returns input where condition is true and other elsewhere.", Func: Where, Memory: true,
			Elementwise: []*Elementwise{whereOp},
			Args:        []Arg{{Name: "condition"}, {Name: "input", Number: true}, {Name: "other"}},
			Samples: []Sample{
				{Name: "equal", Args: []any{bits(4, 3), Shaped(4, 3), Shaped(4, 3)}},
				{Name: "0-d", Args: []any{bits(), Shaped(), Shaped()}},
				{Name: "broadcast condition", Args: []any{bits(3, 1), Shaped(2, 3, 4), Shaped(4)}},
				{Name: "broadcast values", Args: []any{bits(2, 3, 2, 2), Shaped(3, 1, 1), Shaped()}},
				{Name: "number", Args: []any{bits(5), Shaped(5), core.Num(0.25)}},
				{Name: "empty", Args: []any{bits(0), Shaped(0), Shaped(1)}},
			},
		},
		Row{
			Name: "masked_fill", Doc: "Returns input with value where mask is true.", Func: MaskedFill, InPlace: MaskedFillInPlace,
			Memory: true, Elementwise: []*Elementwise{maskedFillOp},
			Args: []Arg{{Name: "input"}, {Name: "mask"}, {Name: "value"}},
			Samples: []Sample{
				{Name: "number", Args: []any{Shaped(4, 3), bits(4, 3), core.Num(0.25)}},
				{Name: "tensor", Args: []any{Shaped(2, 3, 4), bits(3, 1), Shaped()}},
				{Name: "wider mask", Args: []any{Shaped(3), bits(2, 3), core.Num(-1)}},
				{Name: "0-d", Args: []any{Shaped(), bits(), core.Num(2)}},
				{Name: "empty", Args: []any{Shaped(0, 3), bits(3), core.Num(0)}},
			},
		},
	)
}
