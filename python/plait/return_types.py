"""Results of several parts, by name: `plait.sort(x).values`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


max = min = median = nanmedian = mode = sort = topk = kthvalue = cummax = cummin = ValuesIndices
aminmax, frexp, histogram, histogramdd, qr, svd = MinMax, Frexp, Histogram, Histogramdd, QR, SVD
slogdet = linalg_slogdet = Slogdet
linalg_lu, lu_unpack, linalg_lu_factor, linalg_lu_factor_ex = LU, LU, LUFactor, LUFactorEx
linalg_ldl_factor, linalg_ldl_factor_ex, geqrf = LDLFactor, LDLFactorEx, Geqrf
linalg_cholesky_ex, linalg_inv_ex, linalg_solve_ex = CholeskyEx, InvEx, SolveEx
linalg_qr, linalg_svd, linalg_eig, linalg_eigh, linalg_lstsq = QR, LinalgSVD, Eig, Eigh, Lstsq
