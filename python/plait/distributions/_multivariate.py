"""The normal distribution of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._distribution import Distribution
from plait.distributions.utils import lazy_property


def _tril_of_inverse(matrix: Tensor) -> Tensor:
    """Returns the Cholesky factor of the inverse of a positive definite matrix."""
    lower = plait.linalg.cholesky(matrix.flip(-2, -1)).flip(-2, -1).mT  # lower^T lower is the matrix
    eye = plait.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return plait.linalg.solve_triangular(lower, eye, upper=False)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors.

    Args:
        loc: the mean, [..., n]
        covariance_matrix: the covariances, [..., n, n]; or one of
        precision_matrix: their inverse
        scale_tril: their lower Cholesky factor
        validate_args: whether parameters and values are checked
    """

    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError(
                f"MultivariateNormal: want one of covariance_matrix, precision_matrix and scale_tril, got {len(given)}"
            )
        n = loc.shape[-1] if loc.ndim else 0
        if loc.ndim < 1 or given[0].ndim < 2 or tuple(given[0].shape[-2:]) != (n, n):
            raise ValueError(
                f"MultivariateNormal: want loc [..., n] and a matrix [..., n, n], "
                f"got {list(loc.shape)} and {list(given[0].shape)}"
            )
        batch = plait.broadcast_shapes(tuple(loc.shape[:-1]), tuple(given[0].shape[:-2]))
        self.loc = loc.expand(*batch, n)
        if scale_tril is not None:
            self.scale_tril, tril = scale_tril.expand(*batch, n, n), scale_tril
        elif covariance_matrix is not None:
            self.covariance_matrix = covariance_matrix.expand(*batch, n, n)
            tril = plait.linalg.cholesky(covariance_matrix)
        elif precision_matrix is not None:
            self.precision_matrix, tril = precision_matrix.expand(*batch, n, n), _tril_of_inverse(precision_matrix)
        super().__init__(batch, (n,), validate_args)
        self._check("scale_tril", tril, tril.diagonal(dim1=-2, dim2=-1) > 0, "positive on its diagonal")
        self._unbroadcasted_scale_tril = tril  # subclasses may compute it later

    def _expand(self, matrix: Tensor) -> Tensor:
        return matrix.expand(*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariances."""
        return self._expand(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariances of elements."""
        tril = self._unbroadcasted_scale_tril
        return self._expand(tril @ tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances."""
        return self._expand(plait.cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(*self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = plait.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        """Returns half the logarithm of the determinant of the covariances."""
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        d = (value - self.loc).unsqueeze(-1)
        tril = self._unbroadcasted_scale_tril
        z = plait.linalg.solve_triangular(tril.expand(*d.shape[:-2], *tril.shape[-2:]), d, upper=False).squeeze(-1)
        return -(z.square().sum(-1) + self.loc.shape[-1] * math.log(2 * math.pi)) / 2 - self._half_log_det()

    def entropy(self) -> Tensor:
        entropy = self.loc.shape[-1] * (1 + math.log(2 * math.pi)) / 2 + self._half_log_det()
        return entropy.expand(self._batch_shape)

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        n = self.loc.shape[-1]
        tril = self._expand(self._unbroadcasted_scale_tril)
        made = MultivariateNormal(
            self.loc.expand(*batch_shape, n), scale_tril=tril.expand(*batch_shape, n, n), validate_args=False
        )
        for name in ("covariance_matrix", "precision_matrix"):
            if name in vars(self):
                vars(made)[name] = vars(self)[name].expand(*batch_shape, n, n)
        return made

    def _shown(self) -> dict[str, Tensor]:
        names = ("loc", "covariance_matrix", "precision_matrix", "scale_tril")
        return {n: vars(self)[n] for n in names if n in vars(self)}


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with the covariances cov_factor cov_factor^T + diag(cov_diag).

    Args:
        loc: the mean, [..., n]
        cov_factor: [..., n, k], where k is less than n for what this is for
        cov_diag: [..., n], positive
        validate_args: whether parameters and values are checked
    """

    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        n = loc.shape[-1] if loc.ndim else 0
        if loc.ndim < 1 or cov_factor.ndim < 2 or cov_factor.shape[-2] != n or tuple(cov_diag.shape[-1:]) != (n,):
            raise ValueError(
                "LowRankMultivariateNormal: want loc [..., n], cov_factor [..., n, k] and cov_diag [..., n], "
                f"got {list(loc.shape)}, {list(cov_factor.shape)} and {list(cov_diag.shape)}"
            )
        shapes = tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1])
        batch = plait.broadcast_shapes(*shapes)
        self.loc, self.cov_diag = loc.expand(*batch, n), cov_diag.expand(*batch, n)
        self.cov_factor = cov_factor.expand(*batch, n, cov_factor.shape[-1])
        super().__init__(batch, (n,), validate_args)
        self._check("cov_diag", self.cov_diag, self.cov_diag > 0, "positive")

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances of elements."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances."""
        half = plait.linalg.solve_triangular(self._small(), self._scaled(), upper=False)
        return (1 / self.cov_diag).diag_embed() - half.mT @ half

    @property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariances."""
        return plait.linalg.cholesky(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.cov_factor.square().sum(-1) + self.cov_diag

    def _scaled(self) -> Tensor:
        """Returns cov_factor^T / cov_diag, [..., k, n]."""
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    def _small(self) -> Tensor:
        """Returns the Cholesky factor of 1 + cov_factor^T cov_factor / cov_diag, [..., k, k]."""
        inner = self._scaled() @ self.cov_factor
        return plait.linalg.cholesky(inner + plait.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))

    def _half_log_det(self) -> Tensor:
        """Returns half the logarithm of the determinant of the covariances."""
        return self._small().diagonal(dim1=-2, dim2=-1).log().sum(-1) + self.cov_diag.log().sum(-1) / 2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self.loc
        low = plait.randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=like.dtype, device=like.device)
        each = plait.randn(shape, dtype=like.dtype, device=like.device)
        return self.loc + (self.cov_factor @ low.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * each

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        d = value - self.loc
        low = self._scaled() @ d.unsqueeze(-1)
        small = self._small()
        z = plait.linalg.solve_triangular(small.expand(*low.shape[:-2], *small.shape[-2:]), low, upper=False)
        distance = (d.square() / self.cov_diag).sum(-1) - z.square().sum((-2, -1))
        return -(distance + self.loc.shape[-1] * math.log(2 * math.pi)) / 2 - self._half_log_det()

    def entropy(self) -> Tensor:
        return self.loc.shape[-1] * (1 + math.log(2 * math.pi)) / 2 + self._half_log_det()

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        n, k = self.cov_factor.shape[-2:]
        factor = self.cov_factor.expand(*batch_shape, n, k)
        diagonal = self.cov_diag.expand(*batch_shape, n)
        return LowRankMultivariateNormal(self.loc.expand(*batch_shape, n), factor, diagonal, validate_args=False)

    def _shown(self) -> dict[str, Tensor]:
        return {"loc": self.loc, "cov_factor": self.cov_factor, "cov_diag": self.cov_diag}
