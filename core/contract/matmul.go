package contract

import "github.com/plait-ml/plait/core"

// MatMul writes alpha * a @ b + beta * y + bias to y [*, m, n]. y is not read if beta is 0. a is [*, m, k] and b is [*,
// k, n]; either may be transposed. Leading dimensions broadcast to those of y. The bias is [n]. All operands have one
// dtype; with rounded, y is bfloat16, and those inputs that are float32 are rounded to it. For integer dtypes, alpha and beta are whole numbers. With reduced, a device may compute less precisely, as
// [core.ReducedProducts] permits.
var MatMul = declare(Contract{Name: "matmul", Outs: "y", Ins: "a b bias?", Ints: "transpose_a transpose_b reduced rounded", Floats: "alpha beta"})

// MatMulAttrs are the attributes of [MatMul].
type MatMulAttrs struct {
	TransposeA, TransposeB, Reduced, Rounded bool
	Alpha, Beta                              float64
}

// ComplexMatMul is MatMul of complex matrices with contiguous rows in y and a. Operations make it of products of real matrices where a
// device lacks it.
var ComplexMatMul = declare(Contract{Name: "complex_matmul", Outs: "y", Ins: "a b", Floats: "alpha beta", Pairs: core.Linear})

// Dot writes the sum of the products of the elements of two contiguous vectors of float32, float64 or complex numbers to y, which has no
// dimensions. With conjugate, those of a are conjugated. Operations make it of a matrix product where a device lacks it.
var Dot = declare(Contract{Name: "dot", Outs: "y", Ins: "a b", Ints: "conjugate", Pairs: core.Linear})
