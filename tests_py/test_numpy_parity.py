"""Every function with a NumPy counterpart agrees with it, for dtypes and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import plait
import pytest

FLOATS = ("float32", "float64")
WHOLE = ("int32", "int64", "uint8")
NUMBERS = FLOATS + WHOLE


def values(dtype: str, shape: tuple[int, ...], seed: int = 0, low: float = -2, high: float = 2) -> np.ndarray:
    r = np.random.default_rng(seed)
    if dtype == "bool":
        return r.random(shape) < 0.5
    if dtype in WHOLE:
        return r.integers(0 if dtype == "uint8" else -7, 8, shape).astype(dtype)
    return r.uniform(low, high, shape).astype(dtype)


def layouts(a: np.ndarray) -> list[tuple[str, plait.Tensor, np.ndarray]]:
    """Returns the same elements row-major, transposed, with gaps and as a part of something larger."""
    out = [("contiguous", plait.tensor(a), a)]
    if a.ndim == 2:
        out.append(("transposed", plait.tensor(np.ascontiguousarray(a.T)).t(), a))
        wide = np.repeat(a, 2, axis=1)
        out.append(("gaps", plait.tensor(wide)[:, ::2], a))
        framed = np.pad(a, 1)
        out.append(("part", plait.tensor(framed)[1:-1, 1:-1], a))
    return out


def same(got: Any, want: Any, what: str) -> None:
    want = np.asarray(want)
    array = got.numpy() if isinstance(got, plait.Tensor) else np.asarray(got)
    assert array.shape == want.shape, f"{what}: shape {array.shape}, want {want.shape}"
    if array.dtype.kind == "f":
        eps = np.finfo(array.dtype).eps
        np.testing.assert_allclose(array, want, rtol=16 * eps, atol=16 * eps, err_msg=what)
    else:
        np.testing.assert_array_equal(array, want, err_msg=what)


# Name, NumPy's function, dtypes, range of floating-point elements.
UNARY: list[tuple[str, Callable[..., Any], tuple[str, ...], tuple[float, float]]] = [
    ("abs", np.abs, NUMBERS, (-2, 2)), ("absolute", np.absolute, NUMBERS, (-2, 2)), ("neg", np.negative, FLOATS, (-2, 2)),
    ("positive", np.positive, NUMBERS, (-2, 2)), ("acos", np.arccos, FLOATS, (-1, 1)), ("asin", np.arcsin, FLOATS, (-1, 1)),
    ("atan", np.arctan, FLOATS, (-9, 9)), ("acosh", np.arccosh, FLOATS, (1.1, 9)), ("asinh", np.arcsinh, FLOATS, (-9, 9)),
    ("atanh", np.arctanh, FLOATS, (-0.9, 0.9)), ("arccos", np.arccos, FLOATS, (-1, 1)), ("ceil", np.ceil, FLOATS, (-9, 9)),
    ("floor", np.floor, FLOATS, (-9, 9)), ("trunc", np.trunc, FLOATS, (-9, 9)), ("fix", np.fix, FLOATS, (-9, 9)),
    ("round", np.round, FLOATS, (-9, 9)), ("cos", np.cos, FLOATS, (-9, 9)), ("sin", np.sin, FLOATS, (-9, 9)),
    ("tan", np.tan, FLOATS, (-1.5, 1.5)), ("cosh", np.cosh, FLOATS, (-3, 3)), ("sinh", np.sinh, FLOATS, (-3, 3)),
    ("tanh", np.tanh, FLOATS, (-3, 3)), ("deg2rad", np.deg2rad, FLOATS, (-360, 360)), ("rad2deg", np.rad2deg, FLOATS, (-7, 7)),
    ("exp", np.exp, FLOATS, (-9, 9)), ("exp2", np.exp2, FLOATS, (-9, 9)), ("expm1", np.expm1, FLOATS, (-2, 2)),
    ("log", np.log, FLOATS, (0.1, 9)), ("log2", np.log2, FLOATS, (0.1, 9)), ("log10", np.log10, FLOATS, (0.1, 9)),
    ("log1p", np.log1p, FLOATS, (-0.9, 9)), ("sqrt", np.sqrt, FLOATS, (0, 9)), ("square", np.square, NUMBERS, (-9, 9)),
    ("reciprocal", lambda a: 1 / a, FLOATS, (0.1, 9)), ("rsqrt", lambda a: 1 / np.sqrt(a), FLOATS, (0.1, 9)),
    ("sign", np.sign, NUMBERS, (-2, 2)), ("signbit", np.signbit, FLOATS, (-2, 2)), ("sinc", np.sinc, FLOATS, (-3, 3)),
    ("frac", lambda a: a - np.trunc(a), FLOATS, (-9, 9)), ("isnan", np.isnan, FLOATS, (-2, 2)), ("isinf", np.isinf, FLOATS, (-2, 2)),
    ("isfinite", np.isfinite, FLOATS, (-2, 2)), ("isneginf", np.isneginf, FLOATS, (-2, 2)), ("isposinf", np.isposinf, FLOATS, (-2, 2)),
    ("logical_not", np.logical_not, (*NUMBERS, "bool"), (-2, 2)), ("bitwise_not", np.bitwise_not, (*WHOLE, "bool"), (0, 0)),
    ("sigmoid", lambda a: 1 / (1 + np.exp(-a)), FLOATS, (-4, 4)), ("i0", np.i0, ("float64",), (-4, 4)),
    ("nan_to_num", np.nan_to_num, FLOATS, (-2, 2)), ("angle", np.angle, FLOATS, (-2, 2)),
    ("fliplr", np.fliplr, NUMBERS, (-2, 2)), ("flipud", np.flipud, NUMBERS, (-2, 2)), ("ravel", np.ravel, NUMBERS, (-2, 2)),
    ("tril", np.tril, NUMBERS, (-2, 2)), ("triu", np.triu, NUMBERS, (-2, 2)), ("trace", np.trace, FLOATS, (-2, 2)),
    ("diagflat", np.diagflat, NUMBERS, (-2, 2)), ("diag", np.diag, NUMBERS, (-2, 2)),
    ("argwhere", np.argwhere, NUMBERS, (-2, 2)),
    ("count_nonzero", np.count_nonzero, NUMBERS, (-2, 2)), ("atleast_3d", lambda a: a[:, :, None], NUMBERS, (-2, 2)),
    ("unique", np.unique, NUMBERS, (-2, 2)), ("rot90", lambda a: np.rot90(a, axes=(0, 1)), NUMBERS, (-2, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reference", "dtypes", "bounds"), UNARY, ids=[u[0] for u in UNARY])
def test_unary(name, reference, dtypes, bounds):
    for dtype in dtypes:
        for shape in ((4, 5), (1, 1), (3, 3)):
            a = values(dtype, shape, 1, *bounds)
            if name == "fliplr" and a.ndim < 2:
                continue
            with np.errstate(all="ignore"):
                want = reference(a)
            for layout, t, _ in layouts(a):
                same(getattr(plait, name)(t), want, f"{name} {dtype} {shape} {layout}")


BINARY: list[tuple[str, Callable[..., Any], tuple[str, ...]]] = [
    ("add", np.add, NUMBERS), ("sub", np.subtract, NUMBERS), ("mul", np.multiply, NUMBERS), ("true_divide", np.divide, FLOATS),
    ("div", np.divide, FLOATS), ("maximum", np.maximum, NUMBERS), ("minimum", np.minimum, NUMBERS), ("fmax", np.fmax, FLOATS),
    ("fmin", np.fmin, FLOATS), ("atan2", np.arctan2, FLOATS), ("hypot", np.hypot, FLOATS), ("copysign", np.copysign, FLOATS),
    ("logaddexp", np.logaddexp, FLOATS), ("logaddexp2", np.logaddexp2, FLOATS), ("nextafter", np.nextafter, FLOATS),
    ("eq", np.equal, NUMBERS), ("ne", np.not_equal, NUMBERS), ("lt", np.less, NUMBERS), ("le", np.less_equal, NUMBERS),
    ("gt", np.greater, NUMBERS), ("ge", np.greater_equal, NUMBERS), ("logical_and", np.logical_and, NUMBERS),
    ("logical_or", np.logical_or, NUMBERS), ("logical_xor", np.logical_xor, NUMBERS), ("bitwise_and", np.bitwise_and, WHOLE),
    ("bitwise_or", np.bitwise_or, WHOLE), ("bitwise_xor", np.bitwise_xor, WHOLE), ("gcd", np.gcd, ("int32", "int64")),
    ("lcm", np.lcm, ("int32", "int64")), ("heaviside", np.heaviside, FLOATS), ("floor_divide", np.floor_divide, FLOATS),
    ("remainder", np.remainder, FLOATS), ("fmod", np.fmod, FLOATS), ("isclose", np.isclose, FLOATS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reference", "dtypes"), BINARY, ids=[b[0] for b in BINARY])
def test_binary(name, reference, dtypes):
    for dtype in dtypes:
        for other in ((4, 5), (5,), (4, 1)):
            a, b = values(dtype, (4, 5), 2), values(dtype, other, 3)
            if dtype in FLOATS and name in ("floor_divide", "remainder", "fmod"):
                b = np.where(np.abs(b) < 0.1, 1, b).astype(dtype)
            with np.errstate(all="ignore"):
                want = reference(a, b)
            for layout, t, _ in layouts(a):
                same(getattr(plait, name)(t, plait.tensor(b)), want, f"{name} {dtype} {other} {layout}")


REDUCTIONS: list[tuple[str, Callable[..., Any], tuple[str, ...]]] = [
    ("sum", np.sum, FLOATS), ("prod", np.prod, ("float64",)), ("mean", np.mean, FLOATS), ("amax", np.max, NUMBERS),
    ("amin", np.min, NUMBERS), ("argmax", np.argmax, FLOATS), ("argmin", np.argmin, FLOATS), ("all", np.all, NUMBERS),
    ("any", np.any, NUMBERS), ("nansum", np.nansum, FLOATS), ("nanmean", np.nanmean, FLOATS),
    ("var", lambda a, axis=None, keepdims=False: np.var(a, axis=axis, ddof=1, keepdims=keepdims), FLOATS),
    ("std", lambda a, axis=None, keepdims=False: np.std(a, axis=axis, ddof=1, keepdims=keepdims), FLOATS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reference", "dtypes"), REDUCTIONS, ids=[r[0] for r in REDUCTIONS])
def test_reductions(name, reference, dtypes):
    f = getattr(plait, name)
    for dtype in dtypes:
        a = values(dtype, (4, 5), 4)
        for layout, t, _ in layouts(a):
            what = f"{name} {dtype} {layout}"
            same(f(t), reference(a), what)
            for axis in (0, 1, -1):
                same(f(t, axis), reference(a, axis=axis), f"{what} {axis}")
                same(f(t, dim=axis, keepdim=True), reference(a, axis=axis, keepdims=True), f"{what} {axis} keepdim")
                same(f(t, axis=axis, keepdims=True), reference(a, axis=axis, keepdims=True), f"{what} {axis} keepdims")
            if name not in ("argmax", "argmin", "prod"):
                same(f(t, (0, 1)), reference(a), f"{what} both")


OTHERS: list[tuple[str, Callable[[plait.Tensor], Any], Callable[[np.ndarray], Any]]] = [
    ("cumsum", lambda t: plait.cumsum(t, 1), lambda a: np.cumsum(a, 1)),
    ("cumprod", lambda t: plait.cumprod(t, 0), lambda a: np.cumprod(a, 0)),
    ("sort", lambda t: plait.sort(t, dim=0).values, lambda a: np.sort(a, 0)),
    ("argsort", lambda t: plait.argsort(t), lambda a: np.argsort(a)),
    ("median", lambda t: plait.median(t[:, :3], 1).values, lambda a: np.median(a[:, :3], 1)),
    ("quantile", lambda t: plait.quantile(t, 0.3, 1), lambda a: np.quantile(a, 0.3, 1)),
    ("nanquantile", lambda t: plait.nanquantile(t, 0.3), lambda a: np.nanquantile(a, 0.3)),
    ("diff", lambda t: plait.diff(t), lambda a: np.diff(a)),
    ("flip", lambda t: plait.flip(t, (0, 1)), lambda a: np.flip(a)),
    ("roll", lambda t: plait.roll(t, 2, 1), lambda a: np.roll(a, 2, 1)),
    ("transpose", lambda t: plait.transpose(t, 0, 1), lambda a: a.T),
    ("swapaxes", lambda t: plait.swapaxes(t, 0, 1), lambda a: np.swapaxes(a, 0, 1)),
    ("moveaxis", lambda t: plait.moveaxis(t, 0, 1), lambda a: np.moveaxis(a, 0, 1)),
    ("clip", lambda t: plait.clip(t, -1, 1), lambda a: np.clip(a, -1, 1)),
    ("where", lambda t: plait.where(t > 0, t, 0.5), lambda a: np.where(a > 0, a, 0.5)),
    ("nonzero", lambda t: plait.nonzero(t > 0, as_tuple=True)[1], lambda a: np.nonzero(a > 0)[1]),
    ("take_along_dim", lambda t: plait.take_along_dim(t, plait.argsort(t, 1), 1), lambda a: np.sort(a, 1)),
    ("matmul", lambda t: plait.matmul(t, t.T), lambda a: a @ a.T),
    ("einsum", lambda t: plait.einsum("ij,kj->ki", t, t), lambda a: np.einsum("ij,kj->ki", a, a)),
    ("tensordot", lambda t: plait.tensordot(t, t, ([0, 1], [0, 1])), lambda a: np.tensordot(a, a, ([0, 1], [0, 1]))),
    ("outer", lambda t: plait.outer(t[0], t[1]), lambda a: np.outer(a[0], a[1])),
    ("inner", lambda t: plait.inner(t, t), lambda a: np.inner(a, a)),
    ("kron", lambda t: plait.kron(t, t), lambda a: np.kron(a, a)),
    ("cat", lambda t: plait.cat([t, t], 1), lambda a: np.concatenate([a, a], 1)),
    ("stack", lambda t: plait.stack((t, t), axis=1), lambda a: np.stack([a, a], 1)),
    ("vstack", lambda t: plait.vstack([t, t]), lambda a: np.vstack([a, a])),
    ("hstack", lambda t: plait.hstack([t, t]), lambda a: np.hstack([a, a])),
    ("dstack", lambda t: plait.dstack([t, t]), lambda a: np.dstack([a, a])),
    ("tile", lambda t: plait.tile(t, (2, 3)), lambda a: np.tile(a, (2, 3))),
    ("repeat_interleave", lambda t: plait.repeat_interleave(t, 2, 1), lambda a: np.repeat(a, 2, 1)),
    ("split", lambda t: plait.tensor_split(t, 3, 1)[1], lambda a: np.array_split(a, 3, 1)[1]),
    ("cov", plait.cov, np.cov),
    ("corrcoef", plait.corrcoef, np.corrcoef),
    ("vander", lambda t: plait.vander(t[0]), lambda a: np.vander(a[0])),
    ("bincount", lambda t: plait.bincount((t.ravel().abs() * 3).long()), lambda a: np.bincount((np.abs(a.ravel()) * 3).astype(int))),
    ("histogram", lambda t: plait.histogram(t, 5).hist, lambda a: np.histogram(a, 5)[0]),
    ("histogram density", lambda t: plait.histogram(t, 5, density=True).hist, lambda a: np.histogram(a, 5, density=True)[0]),
    ("searchsorted", lambda t: plait.searchsorted(plait.sort(t[0]).values, t[1].contiguous()), lambda a: np.searchsorted(np.sort(a[0]), a[1])),
    ("trapezoid", lambda t: plait.trapezoid(t, dx=0.5), lambda a: np.sum((a[:, 1:] + a[:, :-1]) / 4, 1)),
    ("gradient", lambda t: plait.gradient(t, dim=1)[0], lambda a: np.gradient(a, axis=1)),
    ("logcumsumexp", lambda t: plait.logcumsumexp(t, 1), lambda a: np.log(np.cumsum(np.exp(a), 1))),
    ("norm", lambda t: plait.norm(t, 3, 1), lambda a: np.linalg.norm(a, 3, 1)),
    ("norm nuc", lambda t: plait.norm(t, "nuc"), lambda a: np.linalg.norm(a, "nuc")),
    ("det", lambda t: plait.linalg.det(t[:, :4]), lambda a: np.linalg.det(a[:, :4])),
    ("inv", lambda t: plait.linalg.inv(t[:, :4]), lambda a: np.linalg.inv(a[:, :4])),
    ("pinv", lambda t: plait.linalg.pinv(t), lambda a: np.linalg.pinv(a)),
    ("svdvals", lambda t: plait.linalg.svdvals(t), lambda a: np.linalg.svd(a)[1]),
    ("matrix_rank", lambda t: plait.linalg.matrix_rank(t), lambda a: np.linalg.matrix_rank(a)),
    ("cond", lambda t: plait.linalg.cond(t[:, :4]), lambda a: np.linalg.cond(a[:, :4])),
    ("matrix_norm 1", lambda t: plait.linalg.matrix_norm(t, 1), lambda a: np.linalg.norm(a, 1)),
    ("matrix_norm 2", lambda t: plait.linalg.norm(t, 2), lambda a: np.linalg.norm(a, 2)),
    ("matrix_norm inf", lambda t: plait.linalg.norm(t, float("inf")), lambda a: np.linalg.norm(a, np.inf)),
    ("eigvalsh", lambda t: plait.linalg.eigvalsh(t @ t.T), lambda a: np.linalg.eigvalsh(a @ a.T)),
    ("eigvalsh U", lambda t: plait.linalg.eigvalsh(t[:, :4], "U"), lambda a: np.linalg.eigvalsh(a[:, :4], "U")),
    ("solve", lambda t: plait.linalg.solve(t[:, :4], t), lambda a: np.linalg.solve(a[:, :4], a)),
    ("solve right", lambda t: plait.linalg.solve(t[:, :4], t.T, left=False), lambda a: np.linalg.solve(a[:, :4].T, a).T),
    ("matrix_power", lambda t: plait.linalg.matrix_power(t[:, :4], -2), lambda a: np.linalg.matrix_power(a[:, :4], -2)),
    ("tensorinv", lambda t: plait.linalg.tensorinv(t[:, :4].reshape(2, 2, 4)), lambda a: np.linalg.tensorinv(a[:, :4].reshape(2, 2, 4))),
    ("sum_to_size", lambda t: t.sum_to_size(1, 5), lambda a: a.sum(0, keepdims=True)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "reference"), OTHERS, ids=[o[0] for o in OTHERS])
def test_others(name, function, reference):
    a = values("float64", (4, 5), 5)
    want = np.asarray(reference(a))
    for layout, t, _ in layouts(a):
        got = function(t).numpy()
        assert got.shape == want.shape, f"{name} {layout}"
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=f"{name} {layout}")


def test_linear_algebra_is_made_of_its_factors():
    a = plait.tensor(values("float64", (4, 3), 6))
    u, s, vh = plait.linalg.svd(a, full_matrices=False)
    assert plait.allclose(u @ s.diag() @ vh, a)
    q, r = plait.linalg.qr(a)
    assert plait.allclose(q @ r, a) and plait.allclose(q.T @ q, plait.eye(3, dtype=plait.float64))
    m = a @ a.T + plait.eye(4, dtype=plait.float64)
    low = plait.linalg.cholesky(m)
    assert plait.allclose(low @ low.T, m)
    assert plait.allclose(plait.cholesky_solve(a, low), plait.linalg.solve(m, a))
    assert plait.allclose(plait.cholesky_inverse(low), m.inverse())
    x = plait.linalg.lstsq(a, a[:, :1]).solution
    assert plait.allclose(a.T @ (a @ x - a[:, :1]), plait.zeros(3, 1, dtype=plait.float64))
    skew = plait.tensor([[0.0, -0.5], [0.5, 0.0]], dtype=plait.float64)
    turn = plait.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=plait.float64)
    want = plait.stack(
        [turn[0].cos() * 0 + plait.tensor([np.cos(0.5), -np.sin(0.5)]), plait.tensor([np.sin(0.5), np.cos(0.5)])]
    )
    assert plait.allclose(plait.linalg.matrix_exp(skew), want.double(), atol=1e-7)


def test_creation_agrees_with_numpy():
    same(plait.arange(5), np.arange(5), "arange")
    same(plait.arange(1, 10, 3), np.arange(1, 10, 3), "arange")
    same(plait.arange(0, 1, 0.25, dtype=plait.float64), np.arange(0, 1, 0.25), "arange")
    assert plait.arange(5).dtype is plait.int64 and plait.arange(5.0).dtype is plait.float32
    same(plait.linspace(0, 1, 5, dtype=plait.float64), np.linspace(0, 1, 5), "linspace")
    same(plait.logspace(0, 2, 3, dtype=plait.float64), np.logspace(0, 2, 3), "logspace")
    same(plait.eye(2, 3), np.eye(2, 3), "eye")
    same(plait.full((2, 3), 7), np.full((2, 3), 7), "full")
    same(plait.zeros(2, 3), np.zeros((2, 3)), "zeros")
    same(plait.ones((2, 3), dtype=plait.bool), np.ones((2, 3), bool), "ones")
    same(plait.tril_indices(3, 4), np.stack(np.tril_indices(3, 0, 4)), "tril_indices")
    for a, b in zip(
        plait.meshgrid(plait.arange(2), plait.arange(3), indexing="xy"), np.meshgrid(range(2), range(3)), strict=True
    ):
        same(a, b, "meshgrid")
