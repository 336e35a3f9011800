package op

import "github.com/plait-ml/plait/core"

func init() {
	complexes := func(shape ...int) T { return T{Shape: shape, DType: core.Complex128, Fixed: true} }
	one := func(make func(shape ...int) T) []Sample {
		return []Sample{{Args: []any{make(3, 4)}}, {Name: "0-d", Args: []any{make()}}, {Name: "empty", Args: []any{make(0, 2)}}}
	}
	two := func(x, y func(shape ...int) T) []Sample {
		return []Sample{{Args: []any{x(3, 4), y(3, 4)}}, {Name: "broadcast", Args: []any{x(2, 3), y(3)}}, {Name: "empty", Args: []any{x(0), y(1)}}}
	}
	positive := func(shape ...int) T { return Between(0.5, 2, shape...) }
	angles := func(shape ...int) T { return Between(-3, 3, shape...) }
	floats := []core.DType{core.Float32}
	exactly := func(samples []Sample) []Sample {
		for i := range samples {
			samples[i].DTypes = floats
		}
		return samples
	}
	register("complex",
		Row{Name: "view_as_real", Func: ViewAsReal, Args: inputAnd(), Memory: true, Shares: true, Samples: one(complexes),
			Doc: "The parts of complex numbers: a view with one more dimension of size 2 at the end."},
		Row{Name: "view_as_complex", Func: ViewAsComplex, Args: inputAnd(), Memory: true, Shares: true,
			Doc: "Pairs of real numbers, in the last dimension, as a view of complex numbers.",
			Samples: exactly([]Sample{{Args: []any{Shaped(3, 2)}, Dense: true}, {Name: "1-d", Args: []any{Shaped(2)}, Dense: true},
				{Name: "empty", Args: []any{Shaped(0, 2)}, Dense: true}})},
		Row{Name: "real", Func: Real, Args: inputAnd(), Memory: true, Shares: true, Samples: one(complexes),
			Doc: "The real parts of complex numbers, as a view; a real tensor as it is."},
		Row{Name: "imag", Func: Imag, Args: inputAnd(), Memory: true, Shares: true, Samples: one(complexes),
			Doc: "The imaginary parts of complex numbers, as a view."},
		Row{Name: "complex", Func: Complex, Args: []Arg{{Name: "real", Doc: "float32 or float64"}, {Name: "imag", Doc: "of the same dtype"}}, Memory: true, Samples: exactly(two(Shaped, Shaped)),
			Doc: "Complex numbers of two tensors of real ones: their real and imaginary parts."},
		Row{Name: "polar", Func: Polar, Args: []Arg{{Name: "abs", Doc: "float32 or float64"}, {Name: "angle", Doc: "of the same dtype, in radians"}}, Samples: exactly(two(positive, angles)),
			Doc: "Complex numbers of their absolute values and angles."},
		// The rows of matmul and of complex are none of operations on elements, so that what these use stands here.
		Row{Name: "conj", Func: Conj, Args: inputAnd(), Elementwise: []*Elementwise{conjOp, turnsOp, addTurnsOp, joinOp}, Memory: true, Shares: true, Samples: append(one(complexes), Sample{Name: "real", Args: []any{Shaped(3)}}),
			Doc: "The conjugates of complex numbers; a real tensor as it is."},
		unaryRow(angleOp, Angle, nil, "Returns the angles in the complex plane, in radians: of real numbers pi where they are negative, else 0.", 0, 0),
	)
}
