package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// The Fourier transforms take float32, float64 and complex numbers; bools and integers are converted to the default dtype. The argument n
// is the length that the transformed dimension is cut or, with zeros behind, extended to; nil is its size. norm says what the transform is
// divided by: nothing ("backward", the default; for the inverse ones n), n ("forward"; for the inverse ones nothing), or the square root of
// n ("ortho").

// FFT returns the discrete Fourier transform along a dimension.
func FFT(x *core.Tensor, n *int, dim int, norm string) *core.Tensor {
	return transformed("fft_fft", x, n, dim, norm, contract.FFTComplex, false)
}

// IFFT returns the inverse of [FFT].
func IFFT(x *core.Tensor, n *int, dim int, norm string) *core.Tensor {
	return transformed("fft_ifft", x, n, dim, norm, contract.FFTComplex, true)
}

// RFFT returns elements 0 to n/2 of the transform of real numbers: the others are their conjugates.
func RFFT(x *core.Tensor, n *int, dim int, norm string) *core.Tensor {
	return transformed("fft_rfft", x, n, dim, norm, contract.FFTRealToHalf, false)
}

// IRFFT returns the inverse of [RFFT]: n real numbers, by default 2 (size - 1).
func IRFFT(x *core.Tensor, n *int, dim int, norm string) *core.Tensor {
	return transformed("fft_irfft", x, n, dim, norm, contract.FFTHalfToReal, true)
}

// HFFT returns the transform of numbers of which elements 0 to n/2 are given and the others are their conjugates: n real numbers, by
// default 2 (size - 1).
func HFFT(x *core.Tensor, n *int, dim int, norm string) *core.Tensor {
	return transformed("fft_hfft", x, n, dim, norm, contract.FFTHalfToReal, false)
}

// IHFFT returns the inverse of [HFFT] of real numbers: elements 0 to n/2.
func IHFFT(x *core.Tensor, n *int, dim int, norm string) *core.Tensor {
	return transformed("fft_ihfft", x, n, dim, norm, contract.FFTRealToHalf, true)
}

// FFTN returns the discrete Fourier transform over dims, by default as many of the last dimensions as s has sizes, or all. s has the
// size that each is cut or extended to; -1 leaves it.
func FFTN(x *core.Tensor, s, dims []int, norm string) *core.Tensor {
	return transformedN("fft_fftn", x, s, dims, norm, contract.FFTComplex, false)
}

// IFFTN returns the inverse of [FFTN].
func IFFTN(x *core.Tensor, s, dims []int, norm string) *core.Tensor {
	return transformedN("fft_ifftn", x, s, dims, norm, contract.FFTComplex, true)
}

// RFFTN returns the transform of real numbers over dims as [FFTN], of whose last dimension elements 0 to n/2 are kept.
func RFFTN(x *core.Tensor, s, dims []int, norm string) *core.Tensor {
	return transformedN("fft_rfftn", x, s, dims, norm, contract.FFTRealToHalf, false)
}

// IRFFTN returns the inverse of [RFFTN]. The last size is by default 2 (size - 1).
func IRFFTN(x *core.Tensor, s, dims []int, norm string) *core.Tensor {
	return transformedN("fft_irfftn", x, s, dims, norm, contract.FFTHalfToReal, true)
}

// HFFTN returns the real transform over dims of numbers of which, along the last one, elements 0 to n/2 are given: see [HFFT].
func HFFTN(x *core.Tensor, s, dims []int, norm string) *core.Tensor {
	return transformedN("fft_hfftn", x, s, dims, norm, contract.FFTHalfToReal, false)
}

// IHFFTN returns the inverse of [HFFTN] of real numbers.
func IHFFTN(x *core.Tensor, s, dims []int, norm string) *core.Tensor {
	return transformedN("fft_ihfftn", x, s, dims, norm, contract.FFTRealToHalf, true)
}

func transformed(name string, x *core.Tensor, n *int, dim int, norm string, kind contract.FFTKind, inverse bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, name, x, n, dim, norm)
	}
	op := begin(name, &x)
	op.fourierInput(x, kind)
	if op.err == nil && x.Dim() == 0 {
		op.failf(core.IndexError, "dimension %d of a tensor without dimensions", dim)
	}
	dim = op.dim(dim, x)
	if op.err != nil {
		return op.fail()
	}
	size := lineOf(x.Shape()[dim], kind)
	if n != nil {
		size = *n
	}
	op.points(size)
	scale := op.normalized(norm, inverse, []int{size})
	return op.compose(func() *core.Tensor {
		return transformLine(name, fourierType(x, kind), fourier{dim, size, kind, inverse, scale})
	})
}

func transformedN(name string, x *core.Tensor, s, dims []int, norm string, kind contract.FFTKind, inverse bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, name, x, s, dims, norm)
	}
	op := begin(name, &x)
	op.fourierInput(x, kind)
	if op.err != nil {
		return op.fail()
	}
	dims, sizes := op.fourierDims(x, s, dims, kind)
	scale := op.normalized(norm, inverse, sizes)
	return op.compose(func() *core.Tensor {
		x := fourierType(x, kind)
		if len(dims) == 0 {
			if kind == contract.FFTComplex {
				x = castTo(x, x.DType().Complex())
			}
			return Mul(x, core.IntNum(1))
		}
		last := len(dims) - 1
		order := make([]fourier, 0, len(dims))
		for i, d := range dims {
			f := fourier{d, sizes[i], contract.FFTComplex, inverse, 1}
			if i == last {
				f.kind, f.scale = kind, scale
			}
			order = append(order, f)
		}
		if kind == contract.FFTRealToHalf { // real numbers first, and complex ones to the end
			slices.Reverse(order)
		}
		for _, f := range order {
			x = transformLine(name, x, f)
		}
		return x
	})
}

// transformLine is [fourier.apply] for lines of any size.
func transformLine(name string, x *core.Tensor, f fourier) *core.Tensor {
	size := f.n
	if f.kind == contract.FFTHalfToReal {
		size = kept(f.n)
	}
	if f.kind == contract.FFTComplex && !x.DType().IsComplex() {
		f.kind = contract.FFTRealToWhole
	}
	return f.apply(name, fitted(x, f.dim, size))
}

// lineOf returns the length of lines of which size elements are given.
func lineOf(size int, kind contract.FFTKind) int {
	if kind == contract.FFTHalfToReal {
		return 2 * (size - 1)
	}
	return size
}

// fourierInput checks the dtype of a transform's input.
func (op *opContext) fourierInput(x *core.Tensor, kind contract.FFTKind) {
	op.tensors(x)
	switch {
	case op.err != nil:
	case x.DType().IsHalf():
		op.failf(core.NotImplemented, "not defined for %v, want float32, float64 or complex numbers", x.DType())
	case kind == contract.FFTRealToHalf && x.DType().IsComplex():
		op.failf(core.DTypeError, "got %v, want real numbers", x.DType())
	}
}

// fourierType returns x in the dtype that the transform takes. The real numbers of a complex transform stay so on CPUs.
func fourierType(x *core.Tensor, kind contract.FFTKind) *core.Tensor {
	d := x.DType()
	if !d.IsFloat() && !d.IsComplex() {
		d = core.CurrentContext().DefaultDType()
		if d.IsHalf() {
			d = core.Float32
		}
	}
	takesReal := kind == contract.FFTComplex && x.Device().Kind() == "cpu" && !d.IsHalf() // by FFTRealToWhole
	if kind != contract.FFTRealToHalf && !takesReal {
		d = d.Complex()
	}
	return To(x, d)
}

// points fails unless a line has a positive length.
func (op *opContext) points(n int) {
	if op.err == nil && n < 1 {
		op.failf(core.ValueError, "cannot transform %d points, want at least 1", n)
	}
}

// normalized returns the factor that norm says for lines of the given sizes.
func (op *opContext) normalized(norm string, inverse bool, sizes []int) float64 {
	n := 1.0
	for _, s := range sizes {
		n *= float64(s)
	}
	switch norm {
	case "", "backward", "forward":
		if (norm == "forward") != inverse {
			return 1 / n
		}
		return 1
	case "ortho":
		return 1 / math.Sqrt(n)
	}
	if op.err == nil {
		op.failf(core.ValueError, "norm is %q, want \"backward\", \"forward\" or \"ortho\"", norm)
	}
	return 1
}

// fourierDims returns the dimensions of a transform over several and the lengths of their lines.
func (op *opContext) fourierDims(x *core.Tensor, s, dims []int, kind contract.FFTKind) (over, sizes []int) {
	switch {
	case dims != nil:
		for i, d := range dims { // in their order, of which the last one is halved
			if d = op.dim(d, x); slices.Contains(over, d) && op.err == nil {
				op.failf(core.ValueError, "dimension %d appears twice in %v", dims[i], dims)
			}
			over = append(over, d)
		}
		if op.err == nil && s != nil && len(s) != len(dims) {
			op.failf(core.ValueError, "got %d sizes for %d dimensions", len(s), len(dims))
		}
	case s != nil && len(s) > x.Dim():
		op.failf(core.ValueError, "got %d sizes for a tensor of %d dimensions", len(s), x.Dim())
	default:
		count := x.Dim()
		if s != nil {
			count = len(s)
		}
		for d := x.Dim() - count; d < x.Dim(); d++ {
			over = append(over, d)
		}
	}
	if op.err == nil && len(over) == 0 && kind != contract.FFTComplex {
		op.failf(core.ValueError, "want at least one dimension to transform")
	}
	if op.err != nil {
		return nil, nil
	}
	for i, d := range over {
		n := x.Shape()[d]
		if i == len(over)-1 {
			n = lineOf(n, kind)
		}
		if s != nil && s[i] != -1 {
			n = s[i]
		}
		op.points(n)
		sizes = append(sizes, n)
	}
	return over, sizes
}

// FFTShift moves the zero frequency of transforms along dims, by default all, to the middle.
func FFTShift(x *core.Tensor, dims []int) *core.Tensor { return shiftedBy("fft_fftshift", x, dims, 0) }

// IFFTShift is the inverse of [FFTShift].
func IFFTShift(x *core.Tensor, dims []int) *core.Tensor {
	return shiftedBy("fft_ifftshift", x, dims, 1)
}

// shiftedBy moves elements on by half the size of each dimension, rounded down, or up if up is 1.
func shiftedBy(name string, x *core.Tensor, dims []int, up int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, name, x, dims)
	}
	op := begin(name, &x)
	op.tensors(x)
	if op.err == nil && dims == nil {
		dims = same(x.Dim())
	}
	over := op.dims(dims, x)
	return op.compose(func() *core.Tensor {
		by := make([]int, len(over))
		for i, d := range over {
			by[i] = (x.Shape()[d] + up) / 2
		}
		if len(over) == 0 {
			return Clone(x)
		}
		return Roll(x, by, over)
	})
}

// FFTFreq returns the frequency of each element of a transform of n numbers that are d apart: 0, 1/(nd) and so on, then negative ones.
func FFTFreq(n int, d float64, o TensorOptions) *core.Tensor {
	return frequencies("fft_fftfreq", n, d, o, func(numbers func(start, end int) *core.Tensor) *core.Tensor {
		return Cat([]*core.Tensor{numbers(0, (n+1)/2), numbers(-(n / 2), 0)}, 0)
	})
}

// RFFTFreq returns the frequency of each element of a transform of n real numbers that are d apart: 0, 1/(nd) and so on.
func RFFTFreq(n int, d float64, o TensorOptions) *core.Tensor {
	return frequencies("fft_rfftfreq", n, d, o, func(numbers func(start, end int) *core.Tensor) *core.Tensor { return numbers(0, kept(n)) })
}

func frequencies(name string, n int, d float64, o TensorOptions, of func(numbers func(start, end int) *core.Tensor) *core.Tensor) *core.Tensor {
	op := begin(name).like(nil, o)
	t := o.dtype(core.CurrentContext().DefaultDType())
	switch {
	case op.err != nil:
	case !t.IsFloat() && !t.IsComplex():
		op.failf(core.DTypeError, "got %v, want a floating-point or complex dtype", t)
	case n < 0:
		op.failf(core.ValueError, "got %d frequencies, want at least 0", n)
	}
	f := op.compose(func() *core.Tensor {
		plain := TensorOptions{DType: &t, Device: o.Device}
		if t.IsComplex() {
			part := t.Part()
			plain.DType = &part
		}
		numbers := func(start, end int) *core.Tensor {
			return Arange(core.IntNum(int64(start)), core.IntNum(int64(end)), nil, plain)
		}
		return To(Mul(of(numbers), core.Num(1/(float64(n)*d))), t)
	})
	if o.RequiresGrad && f.Err() == nil {
		return f.SetRequiresGrad(true)
	}
	return f
}
