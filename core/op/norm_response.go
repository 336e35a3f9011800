package op

import "github.com/plait-ml/plait/core"

// LocalResponseNorm divides x, of shape [N, C, ...], by (k + alpha*m)^beta, where m is the mean of the squares of `size`
// neighbouring channels, those outside counting as 0.
//
// Krizhevsky, Sutskever, Hinton: ImageNet classification with deep convolutional neural networks, 2012.
func LocalResponseNorm(x *core.Tensor, size int, alpha, beta, k float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "local_response_norm", x, size, alpha, beta, k)
	}
	op := begin("local_response_norm", &x)
	op.floatTensor(x)
	batch, channels, inner := op.channels(x)
	if op.err == nil && size < 1 {
		op.failf(core.ValueError, "the number of channels must be positive, got %d", size)
	}
	return op.compose(func() *core.Tensor {
		squares := Reshape(Square(x), batch, channels, inner)
		before, after := min(size/2, channels), min((size-1)/2, channels) // beyond them there are no channels
		padded := Cat([]*core.Tensor{zerosFor(x, x.DType(), []int{batch, before, inner}), squares,
			zerosFor(x, x.DType(), []int{batch, after, inner})}, 1)
		sum := Narrow(padded, 1, 0, channels)
		for i := 1; i <= before+after; i++ {
			sum = Add(sum, Narrow(padded, 1, i, channels))
		}
		return Div(x, Reshape(Pow(Add(Mul(sum, core.Num(alpha/float64(size))), core.Num(k)), core.Num(beta)), x.Shape()...))
	})
}

func init() {
	register("norm", Row{Name: "local_response_norm", Func: LocalResponseNorm,
		Doc: "The input [N, C, ...] divided by a power of the mean square of neighbouring channels.",
		Args: []Arg{{Name: "input"}, {Name: "size", Doc: "the number of neighbouring channels"}, {Name: "alpha", Default: 1e-4},
			{Name: "beta", Default: 0.75, Doc: "the power"}, {Name: "k", Default: 1.0, Doc: "added to the mean square"}},
		Samples: []Sample{
			{Name: "odd", Args: []any{Shaped(2, 5, 3), 3, 0.5, 0.75, 1.0}, Loose: 2},
			{Name: "even", Args: []any{Shaped(2, 4, 2, 2), 2, 0.5, 0.75, 1.5}, Loose: 2},
			{Name: "wider than the channels", Args: []any{Shaped(1, 2, 3), 5, 0.5, 0.5, 1.0}, Loose: 2},
			{Name: "much wider", Args: []any{Shaped(1, 2, 3), 1 << 62, 0.5, 0.5, 1.0}, Loose: 2},
		}})
}
