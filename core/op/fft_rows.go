package op

import "github.com/plait-ml/plait/core"

func init() {
	length := Arg{Name: "n", Optional: true, Doc: "the length that the dimension is cut to, or extended to with zeros; by default its size"}
	realLength := Arg{Name: "n", Optional: true, Doc: "the length of the result, by default 2 (size - 1)"}
	dim := Arg{Name: "dim", Default: -1, Doc: "the dimension that is transformed"}
	norm := Arg{Name: "norm", Default: "backward", Doc: "what a transform to frequencies is divided by: nothing (\"backward\"), n (\"forward\"), or the square root of n (\"ortho\"); " +
		"that back is divided by the rest of n"}
	sizes := Arg{Name: "s", Optional: true, Doc: "the length that each dimension is cut to, or extended to with zeros; -1 leaves it"}
	dims := Arg{Name: "dim", Optional: true, Doc: "the dimensions that are transformed, by default as many of the last as s has lengths, or all"}
	float := []core.DType{core.Float32}
	complexes := func(shape ...int) T { return T{Shape: shape, DType: core.Complex128, Fixed: true} }
	n := func(n int) *int { return &n }
	samples := func(make func(shape ...int) T) []Sample {
		return []Sample{
			{Args: []any{make(3, 6), nil, -1, ""}, DTypes: float}, {Name: "longer", Args: []any{make(5, 2), n(8), 0, "ortho"}, DTypes: float},
			{Name: "shorter", Args: []any{make(2, 7, 2), n(5), 1, "forward"}, DTypes: float}, {Name: "empty", Args: []any{make(0, 4), nil, -1, ""}, DTypes: float},
			{Name: "real", Args: []any{Shaped(2, 5), nil, -1, ""}, DTypes: float},
		}
	}
	samplesN := func(make func(shape ...int) T) []Sample {
		return []Sample{
			{Args: []any{make(3, 4), nil, nil, ""}, DTypes: float}, {Name: "sizes", Args: []any{make(2, 3, 4), []int{5, -1}, []int{2, 0}, "ortho"}, DTypes: float},
			{Name: "last", Args: []any{make(2, 3, 2), []int{2, 3}, nil, "forward"}, DTypes: float},
			{Name: "real", Args: []any{Shaped(2, 5), nil, nil, ""}, DTypes: float},
		}
	}
	frequencies := []Arg{{Name: "n", Doc: "the length of the transform"}, {Name: "d", Default: 1.0, Doc: "the distance of the numbers"},
		{Name: "dtype", Field: "DType", Optional: true, Doc: "of the result"}, {Name: "device", Field: "Device", Optional: true, Doc: "where the result goes"},
		{Name: "requires_grad", Field: "RequiresGrad", Default: false, Doc: "whether the result collects its gradient"}}
	no := false
	register("fft",
		Row{Name: "fft_fft", Func: FFT, Args: inputAnd(length, dim, norm), Doc: "The discrete Fourier transform along a dimension.",
			Samples: append(samples(complexes), Sample{Name: "prime", Args: []any{complexes(2, 37), nil, -1, ""}, Loose: 10, DTypes: float})},
		Row{Name: "fft_ifft", Func: IFFT, Args: inputAnd(length, dim, norm), Doc: "The inverse of `fft` along a dimension.", Samples: samples(complexes)},
		Row{Name: "fft_rfft", Func: RFFT, Args: inputAnd(length, dim, norm), Doc: "Elements 0 to n/2 of the discrete Fourier transform of real numbers: the others are their conjugates.",
			Samples: append(samples(Shaped), Sample{Name: "prime", Args: []any{Shaped(2, 37), nil, -1, ""}, Loose: 10, DTypes: float})},
		Row{Name: "fft_irfft", Func: IRFFT, Args: inputAnd(realLength, dim, norm), Doc: "The real numbers of which the input is the `rfft`.",
			Samples: append(samples(complexes), Sample{Name: "prime", Args: []any{complexes(2, 19), n(37), -1, ""}, Loose: 10, DTypes: float})},
		Row{Name: "fft_hfft", Func: HFFT, Args: inputAnd(realLength, dim, norm), Doc: "The real discrete Fourier transform of numbers of which elements 0 to n/2 are given: the others are their conjugates.",
			Samples: samples(complexes)},
		Row{Name: "fft_ihfft", Func: IHFFT, Args: inputAnd(length, dim, norm), Doc: "The inverse of `hfft` of real numbers: elements 0 to n/2.", Samples: samples(Shaped)},
		Row{Name: "fft_fftn", Func: FFTN, Args: inputAnd(sizes, dims, norm), Doc: "The discrete Fourier transform over several dimensions.", Samples: samplesN(complexes)},
		Row{Name: "fft_ifftn", Func: IFFTN, Args: inputAnd(sizes, dims, norm), Doc: "The inverse of `fftn`.", Samples: samplesN(complexes)},
		Row{Name: "fft_rfftn", Func: RFFTN, Args: inputAnd(sizes, dims, norm), Doc: "The discrete Fourier transform of real numbers over several dimensions, elements 0 to n/2 of the last.", Samples: samplesN(Shaped)},
		Row{Name: "fft_irfftn", Func: IRFFTN, Args: inputAnd(sizes, dims, norm), Doc: "The real numbers of which the input is the `rfftn`.", Samples: samplesN(complexes)},
		Row{Name: "fft_hfftn", Func: HFFTN, Args: inputAnd(sizes, dims, norm),
			Doc: "The real discrete Fourier transform over several dimensions of numbers of which, along the last, elements 0 to n/2 are given.", Samples: samplesN(complexes)},
		Row{Name: "fft_ihfftn", Func: IHFFTN, Args: inputAnd(sizes, dims, norm), Doc: "The inverse of `hfftn` of real numbers.", Samples: samplesN(Shaped)},
		Row{Name: "fft_fftshift", Func: FFTShift, Memory: true, Doc: "The elements of a transform with the zero frequency in the middle.",
			Args:    inputAnd(Arg{Name: "dim", Optional: true, Doc: "the dimensions that are moved, by default all"}),
			Samples: []Sample{{Args: []any{Shaped(5, 4), nil}}, {Name: "one", Args: []any{Shaped(2, 3), []int{1}}}}},
		Row{Name: "fft_ifftshift", Func: IFFTShift, Memory: true, Doc: "The inverse of `fftshift`.",
			Args:    inputAnd(Arg{Name: "dim", Optional: true, Doc: "the dimensions that are moved, by default all"}),
			Samples: []Sample{{Args: []any{Shaped(5, 4), nil}}, {Name: "one", Args: []any{Shaped(2, 3), []int{1}}}}},
		Row{Name: "fft_fftfreq", Func: FFTFreq, Args: frequencies, NoGrad: "there is no tensor that a gradient could pass to",
			Doc:     "The frequency of each element of a transform of n numbers: 0, 1/(n d) and so on, then negative ones.",
			Samples: []Sample{{Args: []any{5, 1.0, TensorOptions{}}}, {Name: "even", Args: []any{4, 0.5, TensorOptions{}}}, {Name: "none", Args: []any{0, 1.0, TensorOptions{}}}}},
		Row{Name: "fft_rfftfreq", Func: RFFTFreq, Args: frequencies, NoGrad: "there is no tensor that a gradient could pass to",
			Doc:     "The frequency of each element of a transform of n real numbers: 0, 1/(n d) and so on.",
			Samples: []Sample{{Args: []any{5, 1.0, TensorOptions{}}}, {Name: "even", Args: []any{4, 0.5, TensorOptions{}}}}},
		Row{Name: "stft", Func: STFT, Doc: "The short-time Fourier transform of signals: the transforms of frames, [F, T] or [B, F, T], of F frequencies at T times.",
			Args: []Arg{{Name: "input", Doc: "signals, [L] or [B, L]"}, {Name: "n_fft", Doc: "the number of elements of a frame"},
				{Name: "window", Optional: true, Doc: "the weights of a frame's elements, by default ones"},
				{Name: "hop_length", Field: "HopLength", Optional: true, Doc: "the distance of frames, by default n_fft // 4"},
				{Name: "win_length", Field: "WinLength", Optional: true, Doc: "the length of the window, which is in the middle of a frame, by default n_fft"},
				{Name: "center", Field: "Center", Default: true, Doc: "frame t is around element t * hop_length, and the signal is padded at both ends"},
				{Name: "pad_mode", Field: "PadMode", Default: "reflect", Doc: "how: a mode of `pad`"},
				{Name: "normalized", Field: "Normalized", Default: false, Doc: "divide by the square root of n_fft"},
				{Name: "onesided", Field: "OneSided", Optional: true, Doc: "only frequencies 0 to n_fft // 2: by default where signal and window are real"}},
			Samples: []Sample{
				{Args: []any{Shaped(2, 14), 8, Between(0.5, 1, 6), STFTOptions{WinLength: n(6), Center: true, Normalized: true}}, DTypes: float},
				{Name: "two-sided", Args: []any{Shaped(12), 6, nil, STFTOptions{HopLength: n(3), OneSided: &no}}, DTypes: float},
			}},
		Row{Name: "istft", Func: ISTFT, Waits: true, Doc: "The signals of which the input is the `stft`. Where frames overlap, they are weighted by their windows.",
			Args: []Arg{{Name: "input", Doc: "[F, T] or [B, F, T]"}, {Name: "n_fft", Doc: "the number of elements of a frame"},
				{Name: "window", Optional: true, Doc: "the weights of a frame's elements, by default ones"},
				{Name: "hop_length", Field: "HopLength", Optional: true, Doc: "the distance of frames, by default n_fft // 4"},
				{Name: "win_length", Field: "WinLength", Optional: true, Doc: "the length of the window, which is in the middle of a frame, by default n_fft"},
				{Name: "center", Field: "Center", Default: true, Doc: "frame t is around element t * hop_length: the padding is cut off"},
				{Name: "normalized", Field: "Normalized", Default: false, Doc: "multiply by the square root of n_fft"},
				{Name: "onesided", Field: "OneSided", Optional: true, Doc: "only frequencies 0 to n_fft // 2 are given: by default where there are not n_fft"},
				{Name: "length", Field: "Length", Optional: true, Doc: "the length of the signal, by default what the frames have"},
				{Name: "return_complex", Field: "Complex", Default: false, Doc: "the signal is complex"}},
			Samples: []Sample{
				{Args: []any{complexes(2, 5, 3), 8, Between(0.5, 1, 8), STFTOptions{Center: true}}, DTypes: float},
				{Name: "complex", Args: []any{complexes(6, 3), 6, nil, STFTOptions{HopLength: n(3), Complex: true, OneSided: &no, Length: n(13), Normalized: true}}, DTypes: float},
			}},
	)
}
