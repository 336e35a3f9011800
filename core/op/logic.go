package op

import "github.com/plait-ml/plait/core"

var (
	logicalAndOp = elementwise("logical_and", "x logic, y logic", "x && y")
	logicalOrOp  = elementwise("logical_or", "x logic, y logic", "x || y")
	logicalXorOp = elementwise("logical_xor", "x logic, y logic", "x && !y || !x && y")
	logicalNotOp = elementwise("logical_not", "x logic", "!x")

	bitwiseAndOp = elementwise("bitwise_and", "x, y", "bit_and(x, y)")
	bitwiseOrOp  = elementwise("bitwise_or", "x, y", "bit_or(x, y)")
	bitwiseXorOp = elementwise("bitwise_xor", "x, y", "bit_xor(x, y)")
	bitwiseNotOp = elementwise("bitwise_not", "x", "bit_not(x)")
	leftShiftOp  = elementwise("bitwise_left_shift", "x, y", "shl(x, y)")
	rightShiftOp = elementwise("bitwise_right_shift", "x, y", "shr(x, y)")
)

// LogicalAnd returns whether both are true, elementwise; numbers other than 0 are true.
func LogicalAnd(x, y *core.Tensor) *core.Tensor { return logicalAndOp.apply(nil, x, y) }

// LogicalOr returns whether one or both are true, elementwise; numbers other than 0 are true.
func LogicalOr(x, y *core.Tensor) *core.Tensor { return logicalOrOp.apply(nil, x, y) }

// LogicalXor returns whether exactly one is true, elementwise; numbers other than 0 are true.
func LogicalXor(x, y *core.Tensor) *core.Tensor { return logicalXorOp.apply(nil, x, y) }

// LogicalNot returns whether x is false; numbers other than 0 are true.
func LogicalNot(x *core.Tensor) *core.Tensor { return logicalNotOp.apply(nil, x) }

// bitwise returns the logical operation for bools and the bitwise one for anything else.
func bitwise(logical, bits *Elementwise, tensors ...*core.Tensor) *Elementwise {
	for _, t := range tensors {
		if t == nil || t.Err() != nil || t.DType() != core.Bool {
			return bits
		}
	}
	return logical
}

// BitwiseAnd returns the bitwise and of integers or bools, elementwise.
func BitwiseAnd(x, y *core.Tensor) *core.Tensor {
	return bitwise(logicalAndOp, bitwiseAndOp, x, y).apply(nil, x, y)
}

// BitwiseOr returns the bitwise or of integers or bools, elementwise.
func BitwiseOr(x, y *core.Tensor) *core.Tensor {
	return bitwise(logicalOrOp, bitwiseOrOp, x, y).apply(nil, x, y)
}

// BitwiseXor returns the bitwise exclusive or of integers or bools, elementwise.
func BitwiseXor(x, y *core.Tensor) *core.Tensor {
	return bitwise(logicalXorOp, bitwiseXorOp, x, y).apply(nil, x, y)
}

// BitwiseNot returns the bits of integers inverted, and the logical not of bools.
func BitwiseNot(x *core.Tensor) *core.Tensor {
	return bitwise(logicalNotOp, bitwiseNotOp, x).apply(nil, x)
}

// BitwiseLeftShift returns x shifted left by y bits, elementwise; 0 if y is negative or exceeds the width.
func BitwiseLeftShift(x, y *core.Tensor) *core.Tensor { return leftShiftOp.apply(nil, x, y) }

// BitwiseRightShift returns x shifted right by y bits, elementwise, filled with its sign; nothing but the sign is left if
// y is negative or exceeds the width.
func BitwiseRightShift(x, y *core.Tensor) *core.Tensor { return rightShiftOp.apply(nil, x, y) }

func init() {
	logical := func(e *Elementwise, fn, inPlace any, doc string) Row {
		return binaryRow(e, fn, inPlace, doc, T{}, T{}).of(bits)
	}
	integer := func(e *Elementwise, fn, inPlace any, doc string) Row {
		r := binaryRow(e, fn, inPlace, doc, T{}, T{})
		r.Args[1].Number = true
		r.Samples = r.Samples[:len(r.Samples)-1] // no float number
		return r.of(wholes)
	}
	register("logic",
		logical(logicalAndOp, LogicalAnd, LogicalAndInPlace, "Returns the logical and."),
		logical(logicalOrOp, LogicalOr, LogicalOrInPlace, "Returns the logical or."),
		logical(logicalXorOp, LogicalXor, LogicalXorInPlace, "Returns the logical exclusive or."),
		unaryRow(logicalNotOp, LogicalNot, LogicalNotInPlace, "Returns the logical not.", 0, 0).of(bits),
		integer(bitwiseAndOp, BitwiseAnd, BitwiseAndInPlace, "Returns the bitwise and."),
		integer(bitwiseOrOp, BitwiseOr, BitwiseOrInPlace, "Returns the bitwise or."),
		integer(bitwiseXorOp, BitwiseXor, BitwiseXorInPlace, "Returns the bitwise exclusive or."),
		unaryRow(bitwiseNotOp, BitwiseNot, BitwiseNotInPlace, "Returns the bits inverted.", 0, 0).of(wholes),
		integer(leftShiftOp, BitwiseLeftShift, BitwiseLeftShiftInPlace, "Returns input shifted left by other bits."),
		integer(rightShiftOp, BitwiseRightShift, BitwiseRightShiftInPlace, "Returns input shifted right by other bits."),
	)
}
