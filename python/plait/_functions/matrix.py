"""Products and decompositions of matrices under the names that stand outside linalg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops
from plait import linalg as la
from plait._dtype import get_default_dtype
from plait._functions._common import store
from plait.return_types import LU, QR, SVD, Slogdet

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "addbmm", "addbmm_", "addmm", "addmm_", "addmv", "addmv_", "addr", "addr_", "baddbmm", "baddbmm_", "chain_matmul",
    "cholesky", "cholesky_inverse", "cholesky_solve", "ger", "logdet", "lu", "lu_solve", "lu_unpack", "mvlgamma",
    "pinverse", "qr", "slogdet", "svd", "triangular_solve",
]  # fmt: skip


def _sum_product(name: str) -> Any:
    make, in_place = getattr(_ops, name), getattr(_ops, name + "_")

    def function(
        input: Tensor, one: Tensor, two: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor | None = None
    ) -> Tensor:
        return store(out, make(input, one, two, beta, alpha))

    def changed(input: Tensor, one: Tensor, two: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        return in_place(input, one, two, beta, alpha)

    function.__name__ = function.__qualname__ = name
    changed.__name__ = changed.__qualname__ = name + "_"
    function.__doc__ = (make.__doc__ or "").split("\n", maxsplit=1)[0]
    changed.__doc__ = (in_place.__doc__ or "").split("\n", maxsplit=1)[0]
    return function, changed


addmm, addmm_ = _sum_product("addmm")
addmv, addmv_ = _sum_product("addmv")
addr, addr_ = _sum_product("addr")
addbmm, addbmm_ = _sum_product("addbmm")
baddbmm, baddbmm_ = _sum_product("baddbmm")


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns the product of matrices, multiplied in the order that costs least."""
    return store(out, _ops.chain_matmul(matrices))


def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the triangular factor of symmetric positive definite matrices."""
    return la.cholesky(input, upper=upper, out=out)


def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the solution of equations with the matrix whose Cholesky factor is given."""
    low = L.mT if upper else L
    half = _ops.linalg_solve_triangular(low, input, False)
    return store(out, _ops.linalg_solve_triangular(low.mT, half, True))


def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the inverse of the matrix whose Cholesky factor is given."""
    eye = _ops.expand(_ops.eye(L.shape[-1], dtype=L.dtype, device=L.device), L.shape)
    return store(out, cholesky_solve(eye, L, upper))


def logdet(input: Tensor) -> Tensor:
    """Returns the logarithms of determinants, NaN for negative ones."""
    sign, value = _ops.linalg_slogdet(input)
    return _ops.where(_ops.lt(sign, 0), float("nan"), value)


def slogdet(input: Tensor) -> Slogdet:
    """Returns the signs of determinants and the logarithms of their absolute values."""
    return la.slogdet(input)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> tuple[Tensor, ...]:
    """Returns a compact LU decomposition and its pivots, and with `get_infos` its infos; see `linalg.lu_factor_ex`."""
    if get_infos:
        return store(out, tuple(la.lu_factor_ex(A, pivot=pivot)))
    return store(out, tuple(la.lu_factor(A, pivot=pivot)))


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the solution of equations with the matrix whose LU decomposition is given."""
    return la.lu_solve(LU_data, LU_pivots, b, out=out)


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = None
) -> LU:
    """Returns the permutation matrix P, L and U of a compact LU decomposition, empty tensors for what is not wanted."""
    p, low, up = _ops.lu_unpack(LU_data, LU_pivots)
    none = _ops.empty(0, dtype=LU_data.dtype, device=LU_data.device)
    data = (low, up) if unpack_data else (none, none)
    return store(out, LU(p if unpack_pivots else none, *data))


def qr(input: Tensor, some: bool = True, *, out: Any = None) -> QR:
    """Returns an orthogonal and an upper triangular factor; see `linalg.qr`."""
    return la.qr(input, "reduced" if some else "complete", out=out)


def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> SVD:
    """Returns U, S and V with input = U diag(S) V^T, see `linalg.svd`; without compute_uv U and V are 0, and square."""
    u, s, vh = la.svd(input, not (some and compute_uv))
    if not compute_uv:
        u, vh = _ops.zeros_like(u), _ops.zeros_like(vh)
    return store(out, SVD(u, s, vh.mT))


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Returns the pseudo-inverses of matrices."""
    return _ops.linalg_pinv(input, rcond)


def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the outer product of two vectors."""
    return store(out, _ops.outer(input, vec2))


def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the solution of equations with a triangular matrix, and the matrix."""
    if transpose:
        return _ops.linalg_solve_triangular(A.mT, input, not upper, unitriangular), A
    return _ops.linalg_solve_triangular(A, input, upper, unitriangular), A


def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """Returns the logarithm of the p-dimensional gamma function."""
    from math import log, pi

    if p < 1:
        raise ValueError(f"mvlgamma: p must be at least 1, got {p}")
    x = input if input.dtype.is_floating_point else input.to(get_default_dtype())
    halves = _ops.arange(0, end=-p / 2, step=-0.5, dtype=x.dtype, device=x.device)
    terms = _ops.lgamma(_ops.unsqueeze(x, -1) + halves)
    return store(out, _ops.sum(terms, (-1,)) + p * (p - 1) / 4 * log(pi))
