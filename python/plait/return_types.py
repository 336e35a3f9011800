"""Results of several parts, by name: `plait.sort(x).values`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from plait._engine import spelling

if TYPE_CHECKING:
    from plait._tensor import Tensor


class ValuesIndices(NamedTuple):
    """Elements and where they were: of max, min, median, nanmedian, mode, sort, topk, kthvalue, cummax and cummin."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest elements: of aminmax."""

    min: Tensor
    max: Tensor


class Frexp(NamedTuple):
    """Mantissas and exponents: of frexp."""

    mantissa: Tensor
    exponent: Tensor


class Histogram(NamedTuple):
    """Counts and the edges of the bins: of histogram."""

    hist: Tensor
    bin_edges: Tensor


class Histogramdd(NamedTuple):
    """Counts and, of each dimension, the edges of the bins: of histogramdd."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


class QR(NamedTuple):
    """An orthogonal and an upper triangular matrix: of qr."""

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """Singular values and vectors: of svd, where V is not transposed."""

    U: Tensor
    S: Tensor
    V: Tensor


class LinalgSVD(NamedTuple):
    """Singular values and vectors: of linalg.svd, where the right ones are transposed."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class Slogdet(NamedTuple):
    """The sign and the logarithm of the absolute value of a determinant."""

    sign: Tensor
    logabsdet: Tensor


class Eig(NamedTuple):
    """Eigenvalues and, in columns, eigenvectors."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class Eigh(NamedTuple):
    """Eigenvalues in ascending order and eigenvectors in columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class Lstsq(NamedTuple):
    """What linalg.lstsq found."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class LU(NamedTuple):
    """A permutation matrix and two triangular ones: of linalg.lu and lu_unpack."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    """Both triangular matrices in one, and the exchanges of rows: of linalg.lu_factor."""

    LU: Tensor
    pivots: Tensor


class LUFactorEx(NamedTuple):
    """What linalg.lu_factor returns, and where a matrix is singular."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class LDLFactor(NamedTuple):
    """A triangular matrix and one of blocks in one, and the exchanges of rows: of linalg.ldl_factor."""

    LD: Tensor
    pivots: Tensor


class LDLFactorEx(NamedTuple):
    """What linalg.ldl_factor returns, and where a matrix is singular."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


class Geqrf(NamedTuple):
    """R with the vectors of reflections below it, and their factors: of geqrf."""

    a: Tensor
    tau: Tensor


class CholeskyEx(NamedTuple):
    """Triangular factors, and where there is none: of linalg.cholesky_ex."""

    L: Tensor
    info: Tensor


class InvEx(NamedTuple):
    """Inverses, and where there is none: of linalg.inv_ex."""

    inverse: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    """Solutions, and where there is none: of linalg.solve_ex."""

    result: Tensor
    info: Tensor


def _repr(self: tuple[Any, ...]) -> str:
    parts = (f"\n{name}={part!r}" for name, part in zip(self._fields, self, strict=True))  # type: ignore[attr-defined]
    return f"{spelling.package}.return_types.{type(self).__name__}({','.join(parts)})"


def _of(name: str, base: type) -> Any:
    """Returns the class of a function's results, which print with its name."""
    words = {"__slots__": (), "__module__": __name__, "__doc__": f"The results of {name}.", "__repr__": _repr}
    return type(name, (base,), words)


max = _of("max", ValuesIndices)
min = _of("min", ValuesIndices)
median = _of("median", ValuesIndices)
nanmedian = _of("nanmedian", ValuesIndices)
mode = _of("mode", ValuesIndices)
sort = _of("sort", ValuesIndices)
topk = _of("topk", ValuesIndices)
kthvalue = _of("kthvalue", ValuesIndices)
cummax = _of("cummax", ValuesIndices)
cummin = _of("cummin", ValuesIndices)
aminmax = _of("aminmax", MinMax)
frexp = _of("frexp", Frexp)
histogram = _of("histogram", Histogram)
histogramdd = _of("histogramdd", Histogramdd)
qr = _of("qr", QR)
linalg_qr = _of("linalg_qr", QR)
svd = _of("svd", SVD)
slogdet = _of("slogdet", Slogdet)
linalg_slogdet = _of("linalg_slogdet", Slogdet)
linalg_lu = _of("linalg_lu", LU)
lu_unpack = _of("lu_unpack", LU)
linalg_lu_factor = _of("linalg_lu_factor", LUFactor)
linalg_lu_factor_ex = _of("linalg_lu_factor_ex", LUFactorEx)
linalg_ldl_factor = _of("linalg_ldl_factor", LDLFactor)
linalg_ldl_factor_ex = _of("linalg_ldl_factor_ex", LDLFactorEx)
geqrf = _of("geqrf", Geqrf)
linalg_cholesky_ex = _of("linalg_cholesky_ex", CholeskyEx)
linalg_inv_ex = _of("linalg_inv_ex", InvEx)
linalg_solve_ex = _of("linalg_solve_ex", SolveEx)
linalg_svd = _of("linalg_svd", LinalgSVD)
linalg_eig = _of("linalg_eig", Eig)
linalg_eigh = _of("linalg_eigh", Eigh)
linalg_lstsq = _of("linalg_lstsq", Lstsq)
