package op

import "github.com/plait-ml/plait/core"

var (
	eqOp = elementwise("eq", "x, y", "x == y")
	neOp = elementwise("ne", "x, y", "x != y")
	ltOp = elementwise("lt", "x, y", "x < y")
	leOp = elementwise("le", "x, y", "x <= y")
	gtOp = elementwise("gt", "x, y", "x > y")
	geOp = elementwise("ge", "x, y", "x >= y")

	logicalAndOp = elementwise("logical_and", "x logic, y logic", "x && y")
	logicalOrOp  = elementwise("logical_or", "x logic, y logic", "x || y")
	logicalXorOp = elementwise("logical_xor", "x logic, y logic", "x && !y || !x && y")
	logicalNotOp = elementwise("logical_not", "x logic", "!x")

	whereOp = elementwise("where", "condition logic, x, y", "where(condition, x, y)",
		"", "where(condition, grad, 0)", "where(condition, 0, grad)")
)

// Eq returns whether x equals y, elementwise, as bools.
func Eq(x, y *core.Tensor) *core.Tensor { return eqOp.apply(nil, x, y) }

// Ne returns whether x differs from y, elementwise, as bools.
func Ne(x, y *core.Tensor) *core.Tensor { return neOp.apply(nil, x, y) }

// Lt returns whether x < y, elementwise, as bools.
func Lt(x, y *core.Tensor) *core.Tensor { return ltOp.apply(nil, x, y) }

// Le returns whether x <= y, elementwise, as bools.
func Le(x, y *core.Tensor) *core.Tensor { return leOp.apply(nil, x, y) }

// Gt returns whether x > y, elementwise, as bools.
func Gt(x, y *core.Tensor) *core.Tensor { return gtOp.apply(nil, x, y) }

// Ge returns whether x >= y, elementwise, as bools.
func Ge(x, y *core.Tensor) *core.Tensor { return geOp.apply(nil, x, y) }

// LogicalAnd returns whether both are true, elementwise; numbers other than 0 are true.
func LogicalAnd(x, y *core.Tensor) *core.Tensor { return logicalAndOp.apply(nil, x, y) }

// LogicalAndInPlace replaces x by whether both are true and returns it.
func LogicalAndInPlace(x, y *core.Tensor) *core.Tensor { return logicalAndOp.applyInPlace(nil, x, y) }

// LogicalOr returns whether one or both are true, elementwise; numbers other than 0 are true.
func LogicalOr(x, y *core.Tensor) *core.Tensor { return logicalOrOp.apply(nil, x, y) }

// LogicalOrInPlace replaces x by whether one or both are true and returns it.
func LogicalOrInPlace(x, y *core.Tensor) *core.Tensor { return logicalOrOp.applyInPlace(nil, x, y) }

// LogicalXor returns whether exactly one is true, elementwise; numbers other than 0 are true.
func LogicalXor(x, y *core.Tensor) *core.Tensor { return logicalXorOp.apply(nil, x, y) }

// LogicalXorInPlace replaces x by whether exactly one is true and returns it.
func LogicalXorInPlace(x, y *core.Tensor) *core.Tensor { return logicalXorOp.applyInPlace(nil, x, y) }

// LogicalNot returns whether x is false; numbers other than 0 are true.
func LogicalNot(x *core.Tensor) *core.Tensor { return logicalNotOp.apply(nil, x) }

// LogicalNotInPlace replaces x by whether it is false and returns it.
func LogicalNotInPlace(x *core.Tensor) *core.Tensor { return logicalNotOp.applyInPlace(nil, x) }

// Where returns x where condition, of bools, is true and y elsewhere.
func Where(condition, x, y *core.Tensor) *core.Tensor {
	if condition != nil && condition.Err() == nil && condition.DType() != core.Bool {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "where", "the condition must be bool, got %v", condition.DType()))
	}
	return whereOp.apply(nil, condition, x, y)
}

func init() {
	// Few distinct values, so that some are equal.
	steps := func(shape ...int) T {
		t := T{Shape: shape, NoGrad: true}
		for i := range core.Numel(shape) {
			t.Values = append(t.Values, float64(i*7%5-2))
		}
		return t
	}
	bit := func(shape ...int) T {
		t := Mask(shape)
		for i := range core.Numel(shape) {
			t.Values = append(t.Values, float64(i*i*3%7%2))
		}
		return t
	}
	binary := func(e *Elementwise, fn, inPlace any, doc string, of func(...int) T) Row {
		r := binaryRow(e, fn, inPlace, doc, T{}, T{})
		for i, s := range r.Samples {
			for j, arg := range s.Args {
				if t, ok := arg.(T); ok {
					r.Samples[i].Args[j] = of(t.Shape...)
				}
			}
		}
		return r
	}
	not := unaryRow(logicalNotOp, LogicalNot, LogicalNotInPlace, "Returns the logical not.", 0, 0)
	for i, s := range not.Samples {
		not.Samples[i].Args[0] = bit(s.Args[0].(T).Shape...)
	}
	register("comparison",
		binary(eqOp, Eq, nil, "Returns whether input equals other.", steps),
		binary(neOp, Ne, nil, "Returns whether input differs from other.", steps),
		binary(ltOp, Lt, nil, "Returns whether input < other.", steps),
		binary(leOp, Le, nil, "Returns whether input <= other.", steps),
		binary(gtOp, Gt, nil, "Returns whether input > other.", steps),
		binary(geOp, Ge, nil, "Returns whether input >= other.", steps),
		binary(logicalAndOp, LogicalAnd, LogicalAndInPlace, "Returns the logical and.", bit),
		binary(logicalOrOp, LogicalOr, LogicalOrInPlace, "Returns the logical or.", bit),
		binary(logicalXorOp, LogicalXor, LogicalXorInPlace, "Returns the logical exclusive or.", bit),
		not,
		Row{
			Name: "where", Doc: "Returns input where condition is true and other elsewhere.", Func: Where, Memory: true,
			Elementwise: []*Elementwise{whereOp},
			Args:        []Arg{{Name: "condition"}, {Name: "input"}, {Name: "other"}},
			Samples: []Sample{
				{Name: "equal", Args: []any{bit(4, 3), Shaped(4, 3), Shaped(4, 3)}},
				{Name: "0-d", Args: []any{bit(), Shaped(), Shaped()}},
				{Name: "broadcast condition", Args: []any{bit(3, 1), Shaped(2, 3, 4), Shaped(4)}},
				{Name: "broadcast values", Args: []any{bit(2, 3, 2, 2), Shaped(3, 1, 1), Shaped()}},
				{Name: "number", Args: []any{bit(5), Shaped(5), core.Num(0.25)}},
				{Name: "empty", Args: []any{bit(0), Shaped(0), Shaped(1)}},
			},
		},
	)
}
