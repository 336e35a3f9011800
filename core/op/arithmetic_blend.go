package op

import "github.com/plait-ml/plait/core"

var (
	lerpOp = elementwise("lerp", "x, y, weight scalar", "where(abs(weight) < 0.5, x + weight*(y - x), y - (y - x)*(1 - weight))",
		"grad*(1 - weight)", "grad*weight", "grad*(y - x)").
		overComplex("near = hypot(weightr, weighti) < 0.5; dr = yr - xr; di = yi - xi; ur = where(near, weightr, weightr - 1); " +
			"ui = weighti; where(near, xr, yr) + ur*dr - ui*di, where(near, xi, yi) + ur*di + ui*dr")
	addcmulOp = elementwise("addcmul", "x, a, b; value", "x + value*a*b", "grad", "grad*value*b", "grad*value*a").
			overComplex("xr + value*(ar*br - ai*bi), xi + value*(ar*bi + ai*br)")
	addcdivOp = elementwise("addcdiv", "x, a, b; value", "x + value*a/b",
		"grad", "grad*value/b", "-grad*value*a/(b*b)").overComplex(complexQuotient("ar", "ai", "br", "bi") + "xr + value*qr, xi + value*qi")
)

// Lerp returns x + weight*(y - x), elementwise; exactly y where weight is 1.
func Lerp(x, y, weight *core.Tensor) *core.Tensor { return lerpOp.apply(nil, x, y, weight) }

// Addcmul returns x + value*a*b, elementwise.
func Addcmul(x, a, b *core.Tensor, value float64) *core.Tensor {
	return addcmulOp.apply([]float64{value}, x, a, b)
}

// Addcdiv returns x + value*a/b, elementwise.
func Addcdiv(x, a, b *core.Tensor, value float64) *core.Tensor {
	return addcdivOp.apply([]float64{value}, x, a, b)
}

func init() {
	three := func(e *Elementwise, fn, inPlace any, doc string, names [3]string, last T) Row {
		of := func(shape ...int) T { t := last; t.Shape = shape; return t }
		return Row{
			Name: e.Name, Doc: doc, Func: fn, InPlace: inPlace, Memory: true, Elementwise: []*Elementwise{e},
			Args: []Arg{{Name: names[0]}, {Name: names[1]}, {Name: names[2]}},
			Samples: []Sample{
				{Name: "equal", Args: []any{Shaped(4, 3), Shaped(4, 3), of(4, 3)}},
				{Name: "0-d", Args: []any{Shaped(), Shaped(), of()}},
				{Name: "broadcast", Args: []any{Shaped(2, 3, 4), Shaped(3, 1), of(4)}},
				{Name: "wider", Args: []any{Shaped(3, 1), Shaped(2, 1, 3, 2), of()}},
				{Name: "empty", Args: []any{Shaped(0, 2), Shaped(2), of()}},
			},
		}
	}
	weighted := three(lerpOp, Lerp, LerpInPlace, "Returns input + weight*(end - input).", [3]string{"input", "end", "weight"}, Between(0, 1))
	weighted.Samples = append(weighted.Samples, Sample{Name: "number", Args: []any{Shaped(5), Shaped(5), core.Num(0.3)}})
	value := Arg{Name: "value", Default: 1.0}
	factors := [3]string{"input", "tensor1", "tensor2"}
	register("arithmetic",
		weighted,
		three(addcmulOp, Addcmul, AddcmulInPlace, "Returns input + value*tensor1*tensor2.", factors, T{}).with(value, 0.75),
		three(addcdivOp, Addcdiv, AddcdivInPlace, "Returns input + value*tensor1/tensor2.", factors, Between(0.5, 2)).with(value, 0.75),
	)
}
