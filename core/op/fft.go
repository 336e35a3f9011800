package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A fourier is a discrete Fourier transform along one dimension: y[k] = scale * sum of x[j] exp(-2 pi i j k / n).
type fourier struct {
	dim, n  int
	kind    contract.FFTKind
	inverse bool // positive exponents; see [contract.FFTAttrs]
	scale   float64
}

// kept returns the number of elements that are kept of the transform of n real ones: the others are their conjugates.
func kept(n int) int { return n/2 + 1 }

// back is the transform whose result is the gradient of the input, given that of the result.
func (f fourier) back() fourier {
	f.inverse = !f.inverse
	switch f.kind {
	case contract.FFTRealToHalf:
		f.kind = contract.FFTHalfToReal
	case contract.FFTHalfToReal:
		f.kind = contract.FFTRealToHalf
	case contract.FFTRealToWhole:
		f.kind = contract.FFTComplex
	}
	return f
}

// apply transforms x, whose dtype and size along the dimension are what the kind takes.
func (f fourier) apply(name string, x *core.Tensor) *core.Tensor {
	op := begin(name).with(x)
	if op.err == nil && !takesLine(x.Device(), f.n) {
		return op.compose(func() *core.Tensor { return f.convolve(name, x) })
	}
	if op.err != nil {
		return op.fail()
	}
	d, shape := x.DType(), slices.Clone(x.Shape())
	switch f.kind {
	case contract.FFTRealToWhole:
		d = d.Complex()
	case contract.FFTRealToHalf:
		d, shape[f.dim] = d.Complex(), kept(f.n)
	case contract.FFTHalfToReal:
		d, shape[f.dim] = d.Part(), f.n
	}
	y := op.out(d, shape)
	if op.err != nil {
		return op.fail()
	}
	a := contract.FFTAttrs{Dim: f.dim, Length: f.n, Kind: f.kind, Inverse: f.inverse, Scale: f.scale}
	op.launch(a.AddTo(op.call(contract.FFT).Out(y).In(x)))
	if op.grad {
		n := op.node(fourierDeriv, x)
		n.Any = f
		op.attach(n, y)
	}
	return op.done(y)
}

// fourierDeriv is the transform back. Of real lines, the elements that are not kept have gradients like those that are: the others count
// once, and these twice.
func fourierDeriv(ctx *core.BackwardContext) {
	f, g := ctx.Node.Any.(fourier), ctx.Grad()
	if g.Err() != nil {
		ctx.Set(0, g)
		return
	}
	switch f.kind {
	case contract.FFTRealToHalf:
		g = Mul(g, f.counts(g, 0.5))
	case contract.FFTHalfToReal:
		x := f.back().apply(ctx.Node.Name, g)
		ctx.Set(0, Mul(x, f.counts(g, 2)))
		return
	case contract.FFTRealToWhole:
		ctx.Set(0, castTo(f.back().apply(ctx.Node.Name, g), ctx.InputDType(0)))
		return
	}
	ctx.Set(0, f.back().apply(ctx.Node.Name, g))
}

// counts returns a line of the elements that are kept: 1 where an element is its own conjugate, else the given number. It is a tensor beside
// g, to be multiplied by one of its dimensions.
func (f fourier) counts(g *core.Tensor, between float64) *core.Tensor {
	line := make([]float32, kept(f.n))
	for k := range line {
		if line[k] = float32(between); k == 0 || 2*k == f.n {
			line[k] = 1
		}
	}
	return f.beside(g, core.FromSlice(line))
}

// beside returns a line as a tensor that broadcasts with x along the dimension, on the same device.
func (f fourier) beside(x, line *core.Tensor) *core.Tensor {
	shape := make([]int, x.Dim()-f.dim)
	for i := range shape {
		shape[i] = 1
	}
	shape[0] = line.Numel()
	return Reshape(ToDevice(line, x.Device()), shape...)
}

// takesLine reports whether a device's kernels take lines of length n.
func takesLine(d core.Device, n int) bool {
	return d.Kind() == "cpu" || smooth(n, contract.FFTMaxRadix)
}

// smooth reports whether n has no prime factor above most.
func smooth(n, most int) bool {
	for p := 2; p <= most; p++ {
		for n%p == 0 {
			n /= p
		}
	}
	return n == 1
}

// convolve is apply for a length with a large prime factor: 2jk = j^2 + k^2 - (k-j)^2 makes the transform a convolution, which is a product
// of transforms of any length from 2n-1 on. (Bluestein, "A linear filtering approach to the computation of discrete Fourier transform", 1970)
func (f fourier) convolve(name string, x *core.Tensor) *core.Tensor {
	if x.Err() != nil {
		return x
	}
	switch f.kind {
	case contract.FFTRealToHalf:
		g := f
		g.kind = contract.FFTComplex
		return Narrow(g.convolve(name, To(x, x.DType().Complex())), f.dim, 0, kept(f.n))
	case contract.FFTHalfToReal:
		g := f
		g.kind = contract.FFTComplex
		rest := Conj(Flip(Narrow(x, f.dim, 1, f.n-kept(f.n)), []int{f.dim}))
		first := Narrow(x, f.dim, 0, 1) // of which the imaginary part does not count
		first = Complex(Real(first), ZerosLike(Real(first), TensorOptions{}))
		whole := []*core.Tensor{first, Narrow(x, f.dim, 1, kept(f.n)-1), rest}
		if f.n%2 == 0 {
			last := Real(Narrow(x, f.dim, kept(f.n)-1, 1))
			whole = []*core.Tensor{first, Narrow(x, f.dim, 1, kept(f.n)-2), Complex(last, ZerosLike(last, TensorOptions{})), rest}
		}
		return Clone(Real(g.convolve(name, Cat(whole, f.dim))))
	}
	m := 2*f.n - 1
	for m%16 != 0 || !smooth(m, 5) {
		m++
	}
	chirp, filter := make([]complex128, f.n), make([]complex128, m)
	for j := range chirp {
		// j^2 counts modulo 2n.
		sin, cos := math.Sincos(math.Pi * float64(j*j%(2*f.n)) / float64(f.n))
		if !f.inverse {
			sin = -sin
		}
		chirp[j] = complex(cos, sin)
		filter[j] = complex(cos, -sin)
		filter[(m-j)%m] = filter[j]
	}
	line := func(values []complex128) *core.Tensor {
		if x.DType() == core.Complex128 {
			return f.beside(x, core.FromSlice(values))
		}
		low := make([]complex64, len(values))
		for i, v := range values {
			low[i] = complex64(v)
		}
		return f.beside(x, core.FromSlice(low))
	}
	c := line(chirp)
	there := fourier{dim: f.dim, n: m, scale: 1}
	back := fourier{dim: f.dim, n: m, inverse: true, scale: f.scale / float64(m)}
	spectrum := fourier{n: m, scale: 1}.apply(name, line(filter)) // of which the other dimensions have size 1
	y := Mul(there.apply(name, fitted(Mul(x, c), f.dim, m)), spectrum)
	return Mul(Narrow(back.apply(name, y), f.dim, 0, f.n), c)
}

// fitted returns x with n elements along a dimension: its first ones, or with zeros behind them.
func fitted(x *core.Tensor, dim, n int) *core.Tensor {
	if x.Err() != nil {
		return x
	}
	size := x.Shape()[dim]
	switch {
	case n == size:
		return x
	case n < size:
		return Narrow(x, dim, 0, n)
	}
	pad := make([]int, 2*(x.Dim()-dim))
	pad[len(pad)-1] = n - size
	return Pad(x, pad, PadOptions{})
}
