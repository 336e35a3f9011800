package op

import "github.com/plait-ml/plait/core"

// complexConv is a convolution of complex numbers, or the transpose of one: conv of real numbers that has the real and the imaginary part of
// each channel as two channels. The weight has the channels that conv sums over in dimension 1, or with transposed in dimension 0.
func complexConv(nd int, x, w, b *core.Tensor, transposed bool, conv func(x, w, b *core.Tensor) *core.Tensor) *core.Tensor {
	channel := x.Dim() - nd - 1
	// The weight is the matrix of the complex product for each of its elements: [re, -im; im, re], or its transpose.
	first, second := Conj(w), Complex(Imag(w), Real(w))
	if transposed {
		first, second = w, Complex(Neg(Imag(w)), Real(w))
	}
	weight := Movedim(Stack([]*core.Tensor{ViewAsReal(first), ViewAsReal(second)}, 1), []int{-1}, []int{3})
	weight = Flatten(Flatten(weight, 2, 3), 0, 1)
	if b != nil {
		b = Flatten(ViewAsReal(b), 0, 1)
	}
	y := conv(Flatten(Movedim(ViewAsReal(x), []int{-1}, []int{channel + 1}), channel, channel+1), weight, b)
	if y.Err() != nil {
		return y
	}
	return ViewAsComplex(paired(Movedim(Unflatten(y, channel, y.Size(channel)/2, 2), []int{channel + 1}, []int{-1})))
}
