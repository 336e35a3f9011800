"""plait.fft, stft and istft against NumPy's transforms, and PyTorch's conventions."""

import numpy as np
import plait
import pytest
from plait import fft


def numbers(shape, dtype=np.complex128):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


REAL_INPUT, HALF_INPUT = ("rfft", "ihfft"), ("irfft", "hfft")


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("norm", [None, "forward", "ortho"])
def test_one_dimension_is_numpys(name, norm):
    for shape, n, dim in [((6,), None, -1), ((3, 7), 5, -1), ((4, 5, 2), 9, 1), ((0, 4), None, 1), ((2, 37), None, 1)]:
        x = numbers(shape, np.float64 if name in REAL_INPUT else np.complex128)
        want = getattr(np.fft, name)(x, n, dim, norm)
        got = getattr(fft, name)(plait.tensor(x), n, dim, norm)
        assert got.shape == want.shape and got.is_complex() == (want.dtype.kind == "c")
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=1e-13)


# Few and many lines; powers of two, which are split; smooth lengths; large prime factors, which make convolutions.
LENGTHS = [64, 96, 127, 251, 256, 512, 720, 1000, 1024, 1021, 2008, 2048, 4096, 8144, 8192, 10_007, 30_000]


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("n", LENGTHS)
def test_errors_in_single_precision_are_at_most_twice_numpys(name, n):
    # With the norm "ortho" NumPy computes in single precision too, in both directions.
    for lines in (1, 3, 18):
        x = numbers(
            (lines, n // 2 + 1 if name in HALF_INPUT else n), np.float32 if name in REAL_INPUT else np.complex64
        )
        exact = getattr(np.fft, name)(x.astype(np.result_type(x, np.float64)), n, norm="ortho")
        error = distance(getattr(np.fft, name)(x, n, norm="ortho"), exact)
        for t in (plait.tensor(x), plait.tensor(x.T.copy()).T):  # lines one after the other, and side by side
            assert distance(getattr(fft, name)(t, n, norm="ortho").numpy(), exact) <= 2 * error


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_dimensions_are_numpys(name):
    x = numbers((3, 4, 5), np.float64 if name.startswith("r") else np.complex128)
    dims = {"dim": (0, 2)} if name.endswith("n") else {"dim": (1, 0)}
    want = getattr(np.fft, name)(x, (4, 6), dims["dim"], "ortho")
    np.testing.assert_allclose(
        getattr(fft, name)(plait.tensor(x), (4, 6), **dims, norm="ortho").numpy(), want, atol=1e-13
    )
    want = getattr(np.fft, name)(x)
    np.testing.assert_allclose(getattr(fft, name)(plait.tensor(x)).numpy(), want, atol=1e-13)


def test_hermitian_transforms_over_several_dimensions():
    x = plait.tensor(numbers((3, 4)))
    want = fft.hfft(fft.fft(x, dim=0), 6)
    assert plait.allclose(fft.hfft2(x, (-1, 6)), want) and plait.allclose(fft.hfftn(x, (3, 6)), want)
    r = plait.tensor(numbers((3, 4), np.float64))
    for inverse in (fft.ihfft2, fft.ihfftn):
        assert plait.allclose(inverse(r), fft.ifft(fft.ihfft(r), dim=0))


def test_the_error_is_that_of_the_dtype():
    x = numbers((4, 1000))
    exact = np.fft.fft(x)
    for dtype, most in [(np.complex64, 2.5e-7), (np.complex128, 2e-15)]:
        got = fft.fft(plait.tensor(x.astype(dtype))).numpy()
        want = np.fft.fft(x.astype(dtype).astype(np.complex128))
        assert np.linalg.norm(got - want) < most * np.linalg.norm(exact)


def test_dtypes_out_and_frequencies():
    assert fft.fft(plait.arange(4)).dtype == plait.complex64
    assert fft.rfft(plait.tensor([True, False])).tolist() == [1, 1]
    assert fft.irfft(plait.ones(3)).dtype == plait.float32
    out = plait.empty(4, dtype=plait.complex64)
    assert fft.fft(plait.ones(4), out=out) is out and out.tolist() == [4, 0, 0, 0]
    assert fft.fftfreq(4, 0.5).tolist() == [0, 0.5, -1, -0.5]
    assert fft.rfftfreq(4, dtype=plait.float64).tolist() == [0, 0.25, 0.5]
    assert fft.fftshift(fft.fftfreq(4)).tolist() == [-0.5, -0.25, 0, 0.25]
    assert fft.ifftshift(plait.tensor([[1, 2, 3]]), 1).tolist() == [[2, 3, 1]]
    assert fft.fftfreq(3, requires_grad=True).requires_grad


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "rfft2", "irfft2"])
def test_gradients(name):
    x = plait.tensor(numbers((3, 4), np.float64 if name in ("rfft", "ihfft", "rfft2") else np.complex128))
    assert plait.autograd.gradcheck(getattr(fft, name), x.requires_grad_())


def test_what_transforms_refuse():
    x = plait.ones(4)
    for call, error, message in [
        (lambda: fft.fft(x, 0), ValueError, "cannot transform 0 points"),
        (lambda: fft.fft(x, dim=1), IndexError, "dimension"),
        (lambda: fft.fft(x, norm="n"), ValueError, 'norm is "n", want "backward", "forward" or "ortho"'),
        (lambda: fft.fft(x.half()), NotImplementedError, "not defined for float16"),
        (lambda: fft.rfft(x * 1j), TypeError, "want real numbers"),
        (lambda: fft.fftn(x, (1, 2)), ValueError, "got 2 sizes for a tensor of 1 dimensions"),
        (lambda: fft.fft2(x), IndexError, "dimension"),
        (lambda: fft.dct(x), AttributeError, "plait.fft"),
        (lambda: plait.stft(x, 4), ValueError, "return_complex is missing"),
        (lambda: plait.stft(x, 9, return_complex=True, center=False), ValueError, "want 1 to 4"),
        (lambda: plait.istft(x, 4), TypeError, "want complex numbers"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_short_time_transforms():
    x, window = numbers((2, 50), np.float64), np.hanning(12)
    y = plait.stft(plait.tensor(x), 16, 5, 12, plait.tensor(window), return_complex=True)
    padded = np.pad(x, ((0, 0), (8, 8)), mode="reflect")
    frames = np.stack([padded[:, t * 5 : t * 5 + 16] * np.pad(window, 2) for t in range(11)], 1)
    np.testing.assert_allclose(y.numpy(), np.fft.rfft(frames).transpose(0, 2, 1), atol=1e-13)
    back = plait.istft(y, 16, 5, 12, plait.tensor(window), length=50)
    np.testing.assert_allclose(back.numpy(), x, atol=1e-12)
    with pytest.warns(UserWarning, match="deprecated"):
        assert plait.equal(
            plait.tensor(x).stft(16, 5, 12, plait.tensor(window), return_complex=False), plait.view_as_real(y)
        )
    first = plait.stft(plait.tensor(x[0]), 16, 5, 12, center=False, align_to_window=True, return_complex=True)
    np.testing.assert_allclose(first[:, 1].numpy(), np.fft.rfft(np.pad(x[0, 5:17], 2)), atol=1e-13)


def test_the_front_end_of_speech_recognition():
    """Logarithms of energies as Whisper computes them: their gradient reaches the signal."""
    signal = plait.tensor(numbers(1600, np.float32)).requires_grad_()
    spectrum = plait.stft(signal, 400, 160, window=plait.hann_window(400), return_complex=True)
    energies = spectrum[..., :-1].abs() ** 2
    bands = plait.ones(80, 201) / 201 @ energies
    features = plait.clamp(bands, min=1e-10).log10()
    assert features.shape == (80, 10)
    features.sum().backward()
    assert signal.grad.isfinite().all() and signal.grad.abs().sum() > 0
