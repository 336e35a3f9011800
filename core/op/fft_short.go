package op

import (
	"math/cmplx"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// STFTOptions are the options of [STFT] and [ISTFT]. The zero value means those of PyTorch, except that frames are not centred and the
// result has all frequencies.
type STFTOptions struct {
	// HopLength is the distance of frames, NFFT/4 if it is nil.
	HopLength *int
	// WinLength is the length of the window, which is in the middle of a frame, NFFT if it is nil.
	WinLength *int
	// Center says that frame t is around element t*HopLength: the signal is padded at both ends, as PadMode says.
	Center bool
	// PadMode is that of [Pad]; "" is "reflect".
	PadMode string
	// Normalized says that the transforms are divided by the square root of NFFT.
	Normalized bool
	// OneSided says that frequencies 0 to NFFT/2 are there, of real signals. nil is true, if signal and window are real.
	OneSided *bool
	// Length is the length of the signal that [ISTFT] makes, nil the most that frames have.
	Length *int
	// Complex says that the signal that [ISTFT] makes is complex.
	Complex bool
}

// frames says how a signal is cut.
type frames struct {
	hop, length int // distance of frames, and length of the window
	window      *core.Tensor
	oneSided    bool
	norm        string
}

// STFT returns the short-time Fourier transform of signals, [L] or [B, L]: the transforms of frames of nfft elements, [F, T] or [B, F, T], of F
// frequencies at T times. The window has the weights of a frame's elements; nil is ones.
func STFT(x *core.Tensor, nfft int, window *core.Tensor, o STFTOptions) *core.Tensor {
	if parts := distributed(x, window); parts != nil {
		return handOn(parts, "stft", x, nfft, window, o)
	}
	op := begin("stft", &x, optional(&window))
	op.tensors(x)
	if op.err == nil && x.Dim() != 1 && x.Dim() != 2 {
		op.failf(core.ShapeError, "got shape %v, want one or two dimensions", x.Shape())
	}
	f := op.frames(x, nfft, window, o)
	if op.err == nil {
		length := x.Size(-1)
		if o.Center {
			length += 2 * (nfft / 2)
		}
		if nfft < 1 || nfft > length {
			op.failf(core.ValueError, "a frame has %d elements, want 1 to %d, which a signal of shape %v has", nfft, length, x.Shape())
		}
	}
	return op.compose(func() *core.Tensor {
		y := x
		if !x.DType().IsFloat() && !x.DType().IsComplex() {
			y = fourierType(x, contract.FFTRealToHalf)
		}
		if y.Dim() == 1 {
			y = Unsqueeze(y, 0)
		}
		if o.Center {
			mode := o.PadMode
			if mode == "" {
				mode = "reflect"
			}
			y = Squeeze(Pad(Unsqueeze(y, 1), []int{nfft / 2, nfft / 2}, PadOptions{Mode: mode}), 1)
		}
		y = Unfold(y, -1, nfft, f.hop)
		if f.window != nil {
			y = Mul(y, inMiddle(f.window, nfft))
		}
		if f.oneSided {
			y = RFFT(y, nil, -1, f.norm)
		} else {
			y = FFT(y, nil, -1, f.norm)
		}
		y = Transpose(y, 1, 2)
		if x.Dim() == 1 {
			y = Squeeze(y, 0)
		}
		return y
	})
}

// ISTFT returns the signals of which x, [F, T] or [B, F, T], is the [STFT]: [L] or [B, L]. Where frames overlap, they are weighted by their
// windows, whose squares must not add up to 0 anywhere.
func ISTFT(x *core.Tensor, nfft int, window *core.Tensor, o STFTOptions) *core.Tensor {
	if parts := distributed(x, window); parts != nil {
		return handOn(parts, "istft", x, nfft, window, o)
	}
	op := begin("istft", &x, optional(&window))
	op.tensors(x)
	switch {
	case op.err != nil:
	case !x.DType().IsComplex():
		op.failf(core.DTypeError, "got %v, want complex numbers, as stft makes", x.DType())
	case x.Dim() != 2 && x.Dim() != 3:
		op.failf(core.ShapeError, "got shape %v, want [frequencies, frames] or [batch, frequencies, frames]", x.Shape())
	case x.Size(-1) == 0:
		op.failf(core.ShapeError, "got shape %v without frames", x.Shape())
	case nfft < 1:
		op.failf(core.ValueError, "a frame has %d elements, want at least 1", nfft)
	}
	f := op.frames(x, nfft, window, o)
	if op.err == nil {
		if o.OneSided == nil {
			f.oneSided = x.Size(-2) != nfft
		}
		want := nfft
		if f.oneSided {
			want = kept(nfft)
		}
		switch {
		case x.Size(-2) != want:
			op.failf(core.ShapeError, "got %d frequencies in shape %v, want %d for frames of %d elements", x.Size(-2), x.Shape(), want, nfft)
		case f.hop > f.length:
			op.failf(core.ValueError, "frames are %d apart, want at most the window's length %d", f.hop, f.length)
		case f.oneSided && o.Complex:
			op.failf(core.ValueError, "half of the frequencies make a real signal, want onesided=False for a complex one")
		case !o.Complex && f.window != nil && f.window.DType().IsComplex():
			op.failf(core.DTypeError, "got a window of %v for a real signal", f.window.DType())
		}
	}
	if op.err != nil {
		return op.fail()
	}
	count := x.Size(-1)
	whole := nfft + f.hop*(count-1)
	start, end := 0, whole
	if o.Center {
		start, end = nfft/2, whole-nfft/2
	}
	if o.Length != nil {
		end = start + *o.Length
	}
	if end <= start {
		op.failf(core.ValueError, "%d frames leave no signal", count)
		return op.fail()
	}
	op.check(f.covers(nfft, count, start, min(end, whole)))
	return op.compose(func() *core.Tensor {
		y := x
		if y.Dim() == 2 {
			y = Unsqueeze(y, 0)
		}
		y = Transpose(y, 1, 2)
		if o.Complex {
			y = IFFT(y, nil, -1, f.norm)
		} else { // the other frequencies of a real signal are the conjugates
			y = IRFFT(Narrow(y, -1, 0, kept(nfft)), &nfft, -1, f.norm)
		}
		part := x.DType().Part()
		weight := f.window
		if weight == nil {
			weight = Full([]int{f.length}, core.IntNum(1), TensorOptions{DType: &part, Device: x.Device()})
		}
		weight = inMiddle(weight, nfft)
		y = overlapped(Mul(y, weight), f.hop)
		weights := overlapped(Expand(Reshape(Square(weight), 1, 1, nfft), 1, count, nfft), f.hop)
		have := min(end, whole) - start
		y, weights = Narrow(y, 1, start, have), Narrow(weights, 1, start, have)
		y = fitted(Div(y, weights), 1, end-start)
		if x.Dim() == 2 {
			y = Squeeze(y, 0)
		}
		return y
	})
}

// covers returns an error if the squares of the windows of frames add up to 0 at a place from start to end. Far from both ends they are alike
// from frame to frame.
func (f frames) covers(nfft, count, start, end int) error {
	if f.window == nil {
		return nil
	}
	values, err := core.Values[complex128](f.window)
	if err != nil {
		return err
	}
	left := (nfft - len(values)) / 2
	whole := nfft + f.hop*(count-1)
	for place := start; place < end; place++ {
		if inner := whole - nfft - f.hop; place == nfft+f.hop && place < inner {
			place = inner
		}
		var sum complex128
		for t := place / f.hop; t >= 0 && place-t*f.hop < nfft; t-- {
			if i := place - t*f.hop - left; t < count && i >= 0 && i < len(values) {
				sum += values[i] * values[i]
			}
		}
		if !(cmplx.Abs(sum) > 1e-11) {
			return core.Errorf(core.ValueError, "istft", "the squares of the window's elements add up to 0 at place %d, want a smaller hop_length than %d or "+
				"another window", place, f.hop)
		}
	}
	return nil
}

// overlapped returns the sums of frames, [B, T, n], that are hop apart: [B, L].
func overlapped(y *core.Tensor, hop int) *core.Tensor {
	if y.Err() != nil {
		return y
	}
	if y.DType().IsComplex() {
		return Complex(overlapped(Real(y), hop), overlapped(Imag(y), hop))
	}
	n, count := y.Size(2), y.Size(1)
	length := n + hop*(count-1)
	return Reshape(Col2Im(Transpose(y, 1, 2), []int{1, length}, []int{1, n}, PatchOptions{Stride: []int{1, hop}}), y.Size(0), length)
}

// inMiddle returns the window with zeros around it, as long as a frame.
func inMiddle(window *core.Tensor, n int) *core.Tensor {
	if window.Err() != nil {
		return window
	}
	left := (n - window.Numel()) / 2
	return Pad(window, []int{left, n - window.Numel() - left}, PadOptions{})
}

// frames checks the options that both ways have.
func (op *opContext) frames(x *core.Tensor, nfft int, window *core.Tensor, o STFTOptions) frames {
	f := frames{hop: nfft / 4, length: nfft, window: window}
	if op.err != nil {
		return f
	}
	if o.HopLength != nil {
		f.hop = *o.HopLength
	}
	if o.WinLength != nil {
		f.length = *o.WinLength
	}
	if o.Normalized {
		f.norm = "ortho"
	}
	complexInput := window != nil && window.DType().IsComplex() || op.name == "stft" && x.DType().IsComplex()
	f.oneSided = !complexInput
	if o.OneSided != nil {
		f.oneSided = *o.OneSided
	}
	switch {
	case f.hop < 1:
		op.failf(core.ValueError, "frames are %d apart, want at least 1", f.hop)
	case f.length < 1 || f.length > nfft:
		op.failf(core.ValueError, "the window has length %d, want 1 to the frame's %d", f.length, nfft)
	case f.window != nil && !f.window.DType().Differentiable():
		op.failf(core.DTypeError, "the window is of %v, want a floating-point or complex dtype", f.window.DType())
	case f.window != nil && (f.window.Dim() != 1 || f.window.Numel() != f.length):
		op.failf(core.ShapeError, "the window has shape %v, want [%d]", f.window.Shape(), f.length)
	case f.oneSided && complexInput:
		op.failf(core.ValueError, "half of the frequencies are those of real signals and windows, want onesided=False for complex ones")
	}
	if f.window == nil && f.length < nfft && op.err == nil {
		part := x.DType().Part()
		if !part.IsFloat() {
			part = core.CurrentContext().DefaultDType()
		}
		f.window = op.own(Full([]int{f.length}, core.IntNum(1), TensorOptions{DType: &part, Device: x.Device()}))
	}
	return f
}
