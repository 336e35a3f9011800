package op

import "github.com/plait-ml/plait/core"

// unaryRow returns the row of an elementwise operation on one tensor, with samples whose elements lie in [low, high); both
// 0 means the usual range.
func unaryRow(e *Elementwise, fn, inPlace any, doc string, low, high float64) Row {
	t := func(shape ...int) T { return Between(low, high, shape...) }
	return Row{
		Name: e.Name, Doc: doc, Func: fn, InPlace: inPlace, Memory: true, Elementwise: []*Elementwise{e},
		Args: []Arg{{Name: "input"}},
		Samples: []Sample{
			{Name: "0-d", Args: []any{t()}},
			{Name: "1-d", Args: []any{t(7)}},
			{Name: "2-d", Args: []any{t(5, 3)}},
			{Name: "3-d", Args: []any{t(2, 3, 4)}},
			{Name: "4-d", Args: []any{t(2, 1, 3, 2)}},
			{Name: "empty", Args: []any{t(2, 0, 3)}},
		},
		NoGrad: noGrad(e),
	}
}

// noGrad says why an operation without derivatives has none.
func noGrad(e *Elementwise) string {
	for _, g := range e.grads {
		if g != nil {
			return ""
		}
	}
	return "the result is not a continuous number"
}

// binaryRow returns the row of an elementwise operation on two tensors. x and y describe the elements of each; their
// shapes are replaced.
func binaryRow(e *Elementwise, fn, inPlace any, doc string, x, y T) Row {
	of := func(t T, shape ...int) T { t.Shape = shape; return t }
	return Row{
		Name: e.Name, Doc: doc, Func: fn, InPlace: inPlace, Memory: true, Elementwise: []*Elementwise{e},
		Args: []Arg{{Name: "input"}, {Name: "other"}},
		Samples: []Sample{
			{Name: "equal", Args: []any{of(x, 4, 3), of(y, 4, 3)}},
			{Name: "0-d", Args: []any{of(x), of(y)}},
			{Name: "row", Args: []any{of(x, 3, 5), of(y, 5)}},
			{Name: "column", Args: []any{of(x, 2, 3, 4), of(y, 3, 1)}},
			{Name: "both", Args: []any{of(x, 3, 1, 2), of(y, 2, 1)}},
			{Name: "wider", Args: []any{of(x, 2), of(y, 2, 1, 3, 2)}},
			{Name: "0-d other", Args: []any{of(x, 4), of(y)}},
			{Name: "empty", Args: []any{of(x, 0, 3), of(y, 3)}},
			{Name: "number", Args: []any{of(x, 3, 2), core.Num(1.5)}},
		},
		NoGrad: noGrad(e),
	}
}

// with adds an argument to the row and, to every sample, the value.
func (r Row) with(arg Arg, value any) Row {
	r.Args = append(r.Args, arg)
	for i := range r.Samples {
		r.Samples[i].Args = append(r.Samples[i].Args, value)
	}
	return r
}

// and adds the variant that changes its first tensor.
func (r Row) and(inPlace any) Row {
	r.InPlace = inPlace
	return r
}

// ofX gives the tensor the name x, which PyTorch has for some special functions.
func (r Row) ofX() Row {
	r.Args[0] = Arg{Name: "x", Doc: "where the function is evaluated"}
	return r
}

// of replaces the tensors of the row's samples by what make returns for their shapes.
func (r Row) of(make func(shape ...int) T) Row {
	for _, s := range r.Samples {
		for j, arg := range s.Args {
			if t, ok := arg.(T); ok {
				s.Args[j] = make(t.Shape...)
			}
		}
	}
	return r
}
