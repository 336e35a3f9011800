package contract

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
