"""The array API standard: its names, with NumPy's results, which follow it too."""

# ruff: noqa: SIM905

import numpy as np
import plait
import pytest

X = np.array([[3.0, -1.0, 2.5], [0.5, -1.0, 4.0]], np.float32)
I = np.array([[3, 1, 2], [2, 2, 7]])
B = np.array([[True, False, True], [False, False, True]])
V = np.array([2.0, -1.0, 0.5], np.float32)
P = np.abs(X) + 1.5
XP = plait.ones(1).__array_namespace__()

# Each case: a name and its arguments, where a string of NumPy's is a dtype.
UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor isfinite isinf
isnan log log1p log2 log10 logical_not negative positive real round sign signbit sin sinh square sqrt tan
tanh trunc""".split()
DOMAIN = {
    "acos": X / 5,
    "acosh": P,
    "asin": X / 5,
    "atanh": X / 5,
    "log": P,
    "log1p": P,
    "log2": P,
    "log10": P,
    "sqrt": P,
    "bitwise_invert": I,
    "logical_not": B,
}
BINARY = """add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp maximum
minimum multiply not_equal pow remainder subtract""".split()
WHOLE = """bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor""".split()
CASES = [
    *[(n, (DOMAIN.get(n, X),), {}) for n in UNARY],
    *[(n, (P, X if n != "pow" else V), {}) for n in BINARY],
    *[(n, (I, I % 3), {}) for n in WHOLE],
    *[(n, (B, B[::-1].copy()), {}) for n in ("logical_and", "logical_or", "logical_xor")],
    *[(n, (X + 1j * X[::-1],), {}) for n in ("imag", "real", "conj", "abs", "sqrt", "exp", "tanh")],
    ("clip", (X,), {"min": 0.0, "max": 3.0}),
    ("clip", (X, 0.0, 2.0), {}),
    ("clip", (X,), {"max": V}),
    ("clip", (X,), {}),
    ("arange", (5,), {}),
    ("arange", (2, 9, 3), {}),
    ("arange", (3, 1), {}),
    ("arange", (1.0, 0.0, -0.25), {}),
    ("linspace", (0.0, 1.0, 5), {}),
    ("linspace", (0.0, 1.0, 4), {"endpoint": False}),
    ("eye", (3,), {}),
    ("eye", (3, 4), {"k": 1}),
    ("eye", (3, 2), {"k": -2}),
    ("zeros", (3,), {}),
    ("ones", ((2, 1),), {}),
    ("full", ((2,), 7), {}),
    ("zeros_like", (X,), {}),
    ("ones_like", (I,), {}),
    ("full_like", (X, 2.0), {}),
    ("tril", (X,), {"k": -1}),
    ("triu", (X,), {"k": 1}),
    ("meshgrid", (V, I[0]), {}),
    ("meshgrid", (V, I[0]), {"indexing": "ij"}),
    ("asarray", (X,), {}),
    ("asarray", ([1, 2],), {}),
    ("astype", (X, "int64"), {}),
    ("broadcast_to", (V, (2, 3)), {}),
    ("broadcast_arrays", (X, V), {}),
    ("expand_dims", (X,), {"axis": -1}),
    ("flip", (X,), {}),
    ("flip", (X,), {"axis": 1}),
    ("moveaxis", (X, 0, 1), {}),
    ("permute_dims", (X, (1, 0)), {}),
    ("repeat", (X, 2), {}),
    ("repeat", (X, 2), {"axis": 1}),
    ("reshape", (X, (3, 2)), {}),
    ("reshape", (X, (-1,)), {"copy": True}),
    ("roll", (X, 1), {}),
    ("roll", (X, (1, 2)), {"axis": (0, 1)}),
    ("squeeze", (X[None], 0), {}),
    ("tile", (X, (2, 1)), {}),
    ("unstack", (X,), {"axis": 1}),
    ("take", (X, np.array([2, 0])), {"axis": 1}),
    ("all", (B,), {}),
    ("all", (B,), {"axis": 0}),
    ("any", (B,), {"axis": (0, 1), "keepdims": True}),
    ("any", (X,), {"axis": 1}),
    ("max", (X,), {}),
    ("max", (X,), {"axis": 0}),
    ("min", (X,), {"axis": (0, 1)}),
    ("sum", (I,), {"axis": 1, "keepdims": True}),
    ("sum", (X,), {"dtype": "float64"}),
    ("prod", (X,), {}),
    ("prod", (X,), {"axis": (0, 1)}),
    ("mean", (X,), {"axis": 1}),
    ("var", (X,), {}),
    ("var", (X,), {"axis": 1, "correction": 1}),
    ("std", (X,), {"axis": 0, "keepdims": True}),
    ("cumulative_sum", (X,), {"axis": 1}),
    ("cumulative_sum", (V,), {"include_initial": True}),
    ("argmax", (X,), {}),
    ("argmax", (X,), {"axis": 1}),
    ("argmin", (X,), {"axis": 0, "keepdims": True}),
    ("argsort", (V,), {}),
    ("sort", (X,), {"axis": 0}),
    ("sort", (X,), {}),
    ("nonzero", (I - 2,), {}),
    ("searchsorted", (np.sort(V), X), {}),
    ("searchsorted", (np.sort(V), V), {"side": "right"}),
    ("unique_all", (I,), {}),
    ("unique_counts", (X,), {}),
    ("unique_inverse", (I,), {}),
    ("unique_values", (X,), {}),
    ("where", (B, X, V), {}),
    ("matmul", (X, X.T.copy()), {}),
    ("matrix_transpose", (X,), {}),
    ("tensordot", (X, X), {}),
    ("tensordot", (X, X), {"axes": ((1,), (1,))}),
    ("vecdot", (X, V), {}),
    ("isdtype", ("float32", "real floating"), {}),
    ("isdtype", ("bool", ("integral", "bool")), {}),
    ("isdtype", ("uint8", "signed integer"), {}),
    ("can_cast", ("int32", "float64"), {}),
    ("result_type", (X, "float64"), {}),
    ("result_type", (I, 2), {}),
]


def given(value, library):
    if isinstance(value, np.ndarray):
        return value if library is np else plait.tensor(value)
    if isinstance(value, str) and hasattr(np, value):
        return np.dtype(value) if library is np else getattr(library, value)
    return tuple(given(v, library) for v in value) if isinstance(value, tuple) else value


def same(got, want):
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
    elif isinstance(want, np.ndarray | np.generic):
        assert isinstance(got, plait.Tensor) and tuple(got.shape) == want.shape
        assert np.allclose(got.numpy(), want, equal_nan=True)
        assert got.numpy().dtype.kind == want.dtype.kind
    elif isinstance(want, np.dtype):
        assert got.name == want.name
    else:
        assert got == want


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_names_give_numpys_results(name, args, kwargs):
    def call(library):
        space = XP if library is plait else np
        return getattr(space, name)(
            *(given(a, library) for a in args), **{k: given(v, library) for k, v in kwargs.items()}
        )

    same(call(plait), call(np))


def test_lists_of_arrays():
    t, v = plait.tensor(X), plait.tensor(V)
    same(XP.concat([t, t], axis=1), np.concatenate([X, X], axis=1))
    same(XP.concat([t, v], axis=None), np.concatenate([X, V], axis=None))
    same(XP.stack([v, v], axis=-1), np.stack([V, V], axis=-1))


LINALG = {
    "cholesky": (X @ X.T + np.eye(2, dtype=np.float32),),
    "cross": (X, V + X),
    "det": (X[:, :2],),
    "diagonal": (X,),
    "eigvalsh": (X @ X.T,),
    "inv": (X[:, :2],),
    "matmul": (X, X.T.copy()),
    "matrix_norm": (X,),
    "matrix_power": (X[:, :2], 3),
    "matrix_rank": (X,),
    "matrix_transpose": (X,),
    "outer": (V, V),
    "pinv": (X,),
    "slogdet": (X[:, :2],),
    "solve": (X[:, :2], X),
    "svdvals": (X,),
    "tensordot": (X, X),
    "trace": (X,),
    "vecdot": (X, X),
    "vector_norm": (X,),
}


@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra(name):
    args = LINALG[name]
    got = getattr(XP.linalg, name)(*(given(a, plait) for a in args))
    want = getattr(np.linalg, name)(*args)
    for g, w in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        assert np.allclose(g.numpy(), w, rtol=1e-3, atol=1e-4)


def test_decompositions():
    t = plait.tensor(X)
    assert plait.allclose(XP.linalg.qr(t).Q @ XP.linalg.qr(t).R, t, atol=1e-5)
    u, s, vh = XP.linalg.svd(t, full_matrices=False)
    assert plait.allclose(u @ XP.linalg.matmul(plait.diag(s), vh), t, atol=1e-5)
    w, v = XP.linalg.eigh(t @ t.mT)
    assert plait.allclose(v * w @ v.mT, t @ t.mT, atol=1e-4)


def test_every_name_of_the_standard_is_tested_or_a_value():
    tested = {c[0] for c in CASES} | {"concat", "stack"}
    values = """Array e inf nan pi newaxis bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
    float32 float64 complex64 complex128 finfo iinfo from_dlpack fft linalg
    empty empty_like __array_api_version__ __array_namespace_info__""".split()
    assert set(XP.__all__) == tested | set(values)
    assert set(XP.linalg.__all__) == set(LINALG) | {"qr", "svd", "eigh"}
    assert XP.__array_api_version__ == "2023.12" and XP is plait.array_api
    info = XP.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] is plait.float32 and plait.device("cpu", 0) in info.devices()
    assert set(info.dtypes(kind="integral")) == {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    assert info.capabilities()["boolean indexing"] and info.default_device().type == "cpu"


def test_what_it_refuses():
    t = plait.tensor(X)
    assert t.to_device("cpu") is t
    for call, error, message in [
        (lambda: t.__array_namespace__(api_version="1999.1"), ValueError, "2023.12"),
        (lambda: XP.squeeze(t, 0), ValueError, "size 2, want 1"),
        (lambda: XP.take(t, plait.tensor([0])), ValueError, "want an axis"),
        (lambda: XP.sum(t, axis=5), IndexError, "axis 5 is out of range"),
        (lambda: XP.isdtype(plait.float32, "fractional"), ValueError, "unknown kind"),
        (lambda: XP.asarray([1.0], copy=False), ValueError, "forbids the copy"),
        (lambda: XP.nonzero(plait.tensor(1)), ValueError, "0-d"),
    ]:
        with pytest.raises(error, match=message):
            call()


S = plait.tensor(1.5, dtype=plait.float64)  # no dimensions, but a wider dtype
F = plait.tensor(X)


@pytest.mark.parametrize("name", BINARY)
def test_arrays_without_dimensions_promote(name):
    """The operators of tensors are PyTorch's, for which they do not."""
    bools = name in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
    for pair in [(S, F), (F, S)]:
        out = getattr(XP, name)(*pair)
        assert out.dtype is (plait.bool if bools else plait.float64)
    same(getattr(XP, name)(S, F), getattr(np, name)(np.float64(1.5), X))
    assert (S + F).dtype is plait.float32


def test_what_promotes_beside_them():
    assert XP.where(plait.tensor(B), S, F).dtype is plait.float64
    assert XP.bitwise_and(plait.tensor(3), plait.tensor([1], dtype=plait.int32)).dtype is plait.int64
    assert not XP.equal(plait.tensor(0.1, dtype=plait.float64), plait.tensor([0.1])).item()
    double = F.double()
    for out in (
        XP.matmul(F, double.mT), XP.tensordot(F, double), XP.vecdot(F, double), XP.linalg.solve(F[:, :2], double),
        XP.linalg.cross(F, double), XP.linalg.outer(F[0], double[0]), XP.concat([F, double]), XP.stack([F, double]),
    ):  # fmt: skip
        assert out.dtype is plait.float64
    assert XP.searchsorted(plait.tensor(np.sort(V)), plait.tensor(V).double()).dtype is plait.int64
    assert XP.add(F, 1).dtype is XP.add(1.5, F).dtype is plait.float32


def test_names_of_arguments_in_linear_algebra():
    la, t = XP.linalg, plait.tensor(np.stack([X, X + 1]))
    n = t.numpy()
    same(la.vector_norm(t, axis=(0, 2), keepdims=True), np.linalg.vector_norm(n, axis=(0, 2), keepdims=True))
    same(la.vector_norm(t, axis=(), ord=1), np.abs(n))
    same(la.matrix_norm(t, keepdims=True, ord=1), np.linalg.matrix_norm(n, keepdims=True, ord=1))
    same(la.cross(t, t + 1, axis=-1), np.linalg.cross(n, n + 1))
    same(la.vecdot(t, t, axis=-2), (n * n).sum(-2))
    same(XP.vecdot(t, t[0], axis=-1), (n * n[0]).sum(-1))
    bytes_ = plait.tensor([200, 100], dtype=plait.uint8)
    assert la.vecdot(bytes_, bytes_).dtype is plait.uint8
    same(la.solve(plait.tensor(X[:, :2]), plait.tensor(X[:, 2])), np.linalg.solve(X[:, :2], X[:, 2]))
    for shape in [(0, 3), (3, 0), (2, 0, 0)]:
        assert la.pinv(plait.zeros(shape)).shape == (*shape[:-2], shape[-1], shape[-2])
    same(la.diagonal(t, offset=1), np.linalg.diagonal(n, offset=1))


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "var", "std", "any", "all"])
def test_no_axes_are_not_all_axes(name):
    for a in (X, X[0, 0], X[None]):
        for keepdims in (False, True):
            same(
                getattr(XP, name)(plait.tensor(a), axis=(), keepdims=keepdims),
                getattr(np, name)(a, axis=(), keepdims=keepdims),
            )
    same(getattr(XP, name)(plait.tensor(X[0, 0])), getattr(np, name)(X[0, 0]))


def test_edges():
    nan = float("nan")
    same(XP.sign(plait.tensor([nan, -0.0, -2.0])), np.sign(np.array([nan, -0.0, -2.0], np.float32)))
    same(XP.take(F, plait.tensor([-1, 0]), axis=1), np.take(X, [-1, 0], axis=1))
    out = XP.cumulative_sum(plait.tensor([200, 100], dtype=plait.uint8), dtype=plait.uint8, include_initial=True)
    assert out.dtype is plait.uint8 and out.tolist() == [0, 200, 44]
    for k in (1 << 63, -(1 << 63), 5, -5):
        assert XP.eye(3, 4, k=k).tolist() == np.zeros((3, 4)).tolist()
    same(XP.expand_dims(F, 1), np.expand_dims(X, 1))
    same(XP.broadcast_to(F, shape=(2, 2, 3)), np.broadcast_to(X, (2, 2, 3)))
    with pytest.raises(ValueError, match="use flip"):
        F[::-1]


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_limits_of_floats(name):
    dtype, want = getattr(XP, name), np.finfo(name)
    for got in (XP.finfo(dtype), XP.finfo(plait.ones(2, dtype=dtype))):
        assert got.dtype is dtype
        assert (got.bits, got.eps, got.max, got.min) == (want.bits, want.eps, want.max, want.min)
        assert got.smallest_normal == want.smallest_normal and type(got.eps) is float


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_limits_of_integers(name):
    dtype, want = getattr(XP, name), np.iinfo(name)
    for got in (XP.iinfo(dtype), XP.iinfo(plait.ones(2, dtype=dtype))):
        assert got == (want.bits, want.max, want.min, dtype)


def test_fourier_transforms():
    x = np.random.default_rng(1).standard_normal((4, 6))
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        want = getattr(np.fft, name)(x, n=5, axis=0, norm="ortho")
        np.testing.assert_allclose(
            getattr(XP.fft, name)(XP.asarray(x), n=5, axis=0, norm="ortho").numpy(), want, atol=1e-13
        )
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        want = getattr(np.fft, name)(x, s=(3, 4), axes=(1, 0))
        np.testing.assert_allclose(
            getattr(XP.fft, name)(XP.asarray(x), s=(3, 4), axes=(1, 0)).numpy(), want, atol=1e-13
        )
    for name in ("fftshift", "ifftshift"):
        assert getattr(XP.fft, name)(XP.asarray(x), axes=1).tolist() == getattr(np.fft, name)(x, axes=1).tolist()
    assert XP.fft.fftfreq(5, d=0.5).tolist() == pytest.approx(np.fft.fftfreq(5, 0.5).tolist())
    assert XP.fft.rfftfreq(5).tolist() == pytest.approx(np.fft.rfftfreq(5).tolist())
