"""Parametrizations of weights: of a norm, of a spectral norm of 1, orthogonal."""

from __future__ import annotations

from typing import Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor
from plait._tensors.beside import beside
from plait.nn import functional as F
from plait.nn.modules.module import Module
from plait.nn.utils import parametrize


def norm_except_dim(v: Tensor, pow: float = 2, dim: int | None = 0) -> Tensor:
    """Returns the norms of the slices of a tensor along a dimension, or that of all of it for None or -1."""
    if dim is None or dim == -1:
        return _ops.vector_norm(v, float(pow))
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return _ops.vector_norm(v, float(pow), others, True) if others else _ops.abs(v)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """Returns weight_v scaled to norms weight_g."""
        return _ops.mul(weight_v, _ops.div(weight_g, norm_except_dim(weight_v, 2, self.dim)))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the norms of a weight, and itself."""
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a weight the product of norms and directions (Salimans and Kingma, 2016), and returns the module.

    Args:
        module: whose weight it is
        name: its name
        dim: along which each slice has a norm of its own; None for one norm
    """
    if dim is not None and not -1 <= dim < getattr(module, name).ndim:
        raise ValueError(f"weight_norm: dim {dim} is out of range for shape {list(getattr(module, name).shape)}")
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(f"spectral_norm: dim {dim} is out of range for shape {list(weight.shape)}")
        if not 0 < n_power_iterations <= 10_000:  # a few suffice; a size given by mistake would take hours
            raise ValueError(
                f"spectral_norm: n_power_iterations must lie between 1 and 10000, got {n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.n_power_iterations, self.eps = n_power_iterations, eps
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            u = beside(matrix, _ops.randn(matrix.shape[0], dtype=matrix.dtype, device=matrix.device))
            v = beside(matrix, _ops.randn(matrix.shape[1], dtype=matrix.dtype, device=matrix.device))
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        w = _ops.movedim(weight, self.dim, 0) if self.dim else weight
        return _ops.flatten(w, 1)

    @no_grad()
    def _iterate(self, matrix: Tensor, n: int) -> None:
        for _ in range(n):
            self._u.copy_(F.normalize(_ops.mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(_ops.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        """Returns a weight divided by its largest singular value."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Backward must see the vectors of this pass, and the next one changes them in place.
        u, v = _ops.clone(self._u), _ops.clone(self._v)
        return _ops.div(weight, _ops.vdot(u, _ops.mv(matrix, v)))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Returns the weight itself."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value (Miyato et al., 2018), and returns the module.

    Args:
        module: whose weight it is
        name: its name
        n_power_iterations: steps towards that value in each forward in training, at most 10,000
        eps: added to norms
        dim: the outputs' dimension; 1 for transposed convolutions, else 0
    """
    from plait.nn.modules.conv import _ConvTranspose

    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"spectral_norm: {type(module).__name__} has no parameter or buffer {name!r}")
    if dim is None:
        dim = 1 if isinstance(module, _ConvTranspose) else 0
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, made)


class _Orthogonal(Module):
    base: Any

    def __init__(self, weight: Tensor, orthogonal_map: str) -> None:
        super().__init__()
        self.orthogonal_map = orthogonal_map
        self.shape = tuple(weight.shape)

    def forward(self, X: Tensor) -> Tensor:
        """Returns the orthogonal, or of complex numbers unitary, matrix that X stands for."""
        n, k = X.shape[-2:]
        wide = n < k
        X = _ops.transpose(X, -2, -1) if wide else X
        n, k = max(n, k), min(n, k)
        if self.orthogonal_map == "householder":
            Q = _reflections(X)
        else:
            # A skew-symmetric matrix, or a skew-Hermitian one, is mapped, and the first k columns are taken.
            A = _ops.tril(X)
            if n != k:
                zeros = A.new_zeros(*A.shape[:-1], n - k)
                A = _ops.cat([A, zeros], -1)
            A = _ops.sub(A, A.mH)
            if self.orthogonal_map == "matrix_exp":
                Q = A.matrix_exp()
            else:
                one, half = beside(A, _ops.eye(n, dtype=A.dtype, device=A.device)), _ops.mul(A, 0.5)
                Q = _ops.linalg_solve(_ops.sub(one, half), _ops.add(one, half))
            Q = _ops.narrow(Q, -1, 0, k)
        if self.base is not None:
            Q = _ops.matmul(self.base, Q)
        return _ops.transpose(Q, -2, -1) if wide else Q

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        """Returns what stands for an orthogonal matrix."""
        if tuple(Q.shape) != self.shape:
            raise ValueError(f"orthogonal: want shape {list(self.shape)}, got {list(Q.shape)}")
        wide = Q.shape[-2] < Q.shape[-1]
        tall = _ops.transpose(Q, -2, -1) if wide else Q
        n, k = tall.shape[-2:]
        if self.orthogonal_map == "householder":
            X = _to_reflections(tall)
        else:
            # The matrix itself becomes the base, and zeros stand for the identity.
            q = _complete(tall)
            self.register_buffer("base", q)
            X = Q.new_zeros(*tall.shape[:-2], n, k)
        return _ops.contiguous(_ops.transpose(X, -2, -1)) if wide else X


def _column(X: Tensor, i: int) -> Tensor:
    """Returns column i below the diagonal, with 1 on it and 0 above, as a matrix of one column."""
    n = X.shape[-2]
    zeros = X.new_zeros(*X.shape[:-2], i, 1)
    one = X.new_ones(*X.shape[:-2], 1, 1)
    below = _ops.narrow(_ops.narrow(X, -1, i, 1), -2, i + 1, n - i - 1)
    return _ops.cat([zeros, one, below], -2)


def _reflect(v: Tensor, M: Tensor) -> Tensor:
    """Returns M reflected at the plane that is normal to v."""
    scale = _ops.mul(_ops.reciprocal(_ops.sum(_ops.square(v), -2, True)), 2.0)
    return _ops.sub(M, _ops.matmul(_ops.mul(v, scale), _ops.matmul(_ops.transpose(v, -2, -1), M)))


def _reflections(X: Tensor) -> Tensor:
    """Returns the product of the reflections that the columns below the diagonal stand for, times signs on it."""
    n, k = X.shape[-2:]
    Q = beside(X, _ops.eye(n, k, dtype=X.dtype, device=X.device))
    Q = _ops.mul(Q, _ops.unsqueeze(_ops.sgn(_ops.diagonal(X.detach(), 0, -2, -1)), -2))
    for i in reversed(range(k)):
        Q = _reflect(_column(X, i), Q)
    return Q


def _to_reflections(Q: Tensor) -> Tensor:
    """Returns what `_reflections` makes Q of, for Q with orthonormal columns."""
    n, k = Q.shape[-2:]
    R = _ops.clone(Q)
    columns = []
    signs = []
    for i in range(k):
        below = _ops.narrow(_ops.narrow(R, -1, i, 1), -2, i, n - i)
        first = _ops.narrow(below, -2, 0, 1)
        sign = _ops.where(_ops.ge(first, 0), _ops.ones_like(first), -1.0)
        head = _ops.add(first, _ops.mul(sign, _ops.vector_norm(below, 2.0, -2, True)))
        rest = _ops.div(_ops.narrow(below, -2, 1, n - i - 1), head)
        signs.append(_ops.neg(sign))
        above = Q.new_zeros(*Q.shape[:-2], i + 1, 1)
        columns.append(_ops.cat([above, rest], -2))
        R = _reflect(_ops.add(columns[-1], _unit(n, i, Q)), R)
    X = _ops.cat(columns, -1)
    diagonal = _ops.squeeze(_ops.cat(signs, -2), -1)
    return _ops.add(
        X, _ops.mul(beside(Q, _ops.eye(n, k, dtype=Q.dtype, device=Q.device)), _ops.unsqueeze(diagonal, -2))
    )


def _unit(n: int, i: int, like: Tensor) -> Tensor:
    return _ops.narrow(beside(like, _ops.eye(n, dtype=like.dtype, device=like.device)), 1, i, 1)


def _complete(Q: Tensor) -> Tensor:
    """Returns a square orthogonal, or unitary, matrix that begins with the orthonormal columns of Q."""
    n, k = Q.shape[-2:]
    if n == k:
        return _ops.clone(Q)
    extra = beside(Q, _ops.randn(*Q.shape[:-2], n, n - k, dtype=Q.dtype, device=Q.device))
    for _ in range(2):
        extra = _ops.sub(extra, _ops.matmul(Q, _ops.matmul(Q.mH, extra)))
    return _ops.cat([Q, _ops.linalg_qr(extra)[0]], -1)


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Makes a weight a (semi-)orthogonal matrix, of complex numbers a unitary one, and returns the module.

    Args:
        module: whose weight it is
        name: its name
        orthogonal_map: matrix_exp, the default for square and for complex weights, cayley, or householder (products of
            reflections of real numbers), the default for others
        use_trivialization: has no effect: matrix_exp and cayley begin at the weight as it is, householder can be set
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"orthogonal: {type(module).__name__} has no parameter or buffer {name!r}")
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: want a matrix or a batch of them, got shape {list(weight.shape)}")
    whole = weight.shape[-2] == weight.shape[-1] or weight.dtype.is_complex
    chosen = orthogonal_map or ("matrix_exp" if whole else "householder")
    if chosen not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f"orthogonal: orthogonal_map must be matrix_exp, cayley or householder, got {orthogonal_map!r}"
        )
    if chosen == "householder" and weight.dtype.is_complex:
        raise ValueError(f"orthogonal: householder is not defined for {weight.dtype.name}; use matrix_exp or cayley")
    made = _Orthogonal(weight, chosen)
    made.register_buffer("base", None)
    with no_grad():
        weight.copy_(_orthonormal(weight.detach()))
    return parametrize.register_parametrization(module, name, made, unsafe=True)


def _orthonormal(x: Tensor) -> Tensor:
    """Returns the orthonormal factor of x, such that the other one has a positive diagonal."""
    wide = x.shape[-2] < x.shape[-1]
    q, r = _ops.linalg_qr(_ops.transpose(x, -2, -1) if wide else x)
    q = _ops.mul(q, _ops.unsqueeze(_ops.sgn(_ops.diagonal(r, 0, -2, -1)), -2))
    return _ops.transpose(q, -2, -1) if wide else q
