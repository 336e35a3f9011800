package contract

import "github.com/plait-ml/plait/core"

// MatMul writes alpha * a @ b + beta * y + bias to y [*, m, n], which is read unless beta is 0. a is [*, m, k] and b [*, k, n], or their
// matrices are transposed; leading dimensions broadcast to those of y. A bias is [n]. All have one dtype. Integers take whole
// numbers for alpha and beta.
var MatMul = declare(Contract{Name: "matmul", Outs: "y", Ins: "a b bias?", Ints: "transpose_a transpose_b", Floats: "alpha beta"})

// MatMulAttrs are the attributes of [MatMul].
type MatMulAttrs struct {
	TransposeA, TransposeB bool
	Alpha, Beta            float64
}

// AddTo adds the attributes to a call and returns it.
func (a MatMulAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(Flag(a.TransposeA), Flag(a.TransposeB)).Float(a.Alpha, a.Beta)
}

// MatMulOf reads the attributes of a call.
func MatMulOf(c *core.Call) MatMulAttrs {
	return MatMulAttrs{c.Ints[0] != 0, c.Ints[1] != 0, c.Floats[0], c.Floats[1]}
}
