package op

import "github.com/plait-ml/plait/core"

var (
	powOp = elementwise("pow", "x, y", "pow(x, y)",
		"where(y == 0, 0, grad*y*pow(x, y - 1))", "where(x == 0 && y >= 0, 0, grad*out*log(x))")
	cubeOp = elementwise("cube", "x", "x * x * x", "3*grad*x*x")
)

// power returns the operation that raises x to y where there is a cheaper one than pow.
func power(x, y *core.Tensor) *Elementwise {
	if x == nil || y == nil || x.Err() != nil || !y.IsNumber() || !x.DType().IsFloat() && (y.DType().IsFloat() || x.DType() == core.Bool) {
		return nil
	}
	switch y.Number().Float {
	case 2:
		return squareOp
	case 3:
		return cubeOp
	}
	if !x.DType().IsFloat() {
		return nil
	}
	switch y.Number().Float {
	case 0.5:
		return sqrtOp
	case -0.5:
		return rsqrtOp
	case -1:
		return reciprocalOp
	}
	return nil
}

// negativePower returns an error for a power of integers to a negative number.
func negativePower(name string, x, y *core.Tensor) error {
	if x != nil && y != nil && x.Err() == nil && y.IsNumber() && !core.ResultType(x, y).IsFloat() && y.Number().Int < 0 {
		return core.Errorf(core.ValueError, name, "integers have no negative integer powers, got the exponent %d", y.Number().Int)
	}
	return nil
}

// Pow returns x to the power y, elementwise. Powers of integers are integers: a negative element of y gives 0 unless x is
// 1 or -1, a negative number y is an error.
func Pow(x, y *core.Tensor) *core.Tensor {
	defer autocast("pow", &x, &y).end()
	if err := negativePower("pow", x, y); err != nil {
		return core.ErrorTensor(err)
	}
	if e := power(x, y); e != nil {
		return e.apply(nil, x)
	}
	return powOp.apply(nil, x, y)
}

// PowInPlace raises x to the power y and returns it.
func PowInPlace(x, y *core.Tensor) *core.Tensor {
	if err := negativePower("pow_", x, y); err != nil {
		return core.ErrorTensor(err)
	}
	if e := power(x, y); e != nil {
		return e.applyInPlace(nil, x)
	}
	return powOp.applyInPlace(nil, x, y)
}

func init() {
	r := binaryRow(powOp, Pow, PowInPlace, "Returns input to the power other.", Between(0.5, 2), Between(-2, 2))
	r.Elementwise = append(r.Elementwise, cubeOp)
	r.Args[0].Number = true
	for _, exponent := range []float64{2, 3, 0.5, -0.5, -1, 0, 1, 2.5} {
		r.Samples = append(r.Samples, Sample{Name: "number", Args: []any{Between(0.5, 2, 2, 3), core.Num(exponent)}})
	}
	r.Samples = append(r.Samples,
		Sample{Name: "negative base", Args: []any{Between(-2, -0.5, 4), core.Num(4)}},
		Sample{Name: "number base", Args: []any{core.Num(1.5), Between(-2, 2, 4)}})
	register("power", r)
}
