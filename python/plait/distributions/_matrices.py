"""Distributions of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions._distribution import Distribution
from plait.distributions._gamma import Beta
from plait.distributions._samplers import log_gamma
from plait.distributions.utils import broadcast_all


class Wishart(Distribution):
    """The distribution of the sum of x x^T over df draws x of a normal distribution of vectors around 0.

    Args:
        df: the degrees of freedom, [...], above n - 1; not only whole numbers
        covariance_matrix: the covariances of the vectors, [..., n, n]; or one of
        precision_matrix: their inverse
        scale_tril: their lower Cholesky factor
        validate_args: whether parameters and values are checked
    """

    support = constraints.positive_definite
    has_rsample = True

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError(
                f"Wishart: want one of covariance_matrix, precision_matrix and scale_tril, got {len(given)}"
            )
        (matrix,) = given
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(f"Wishart: want a matrix [..., n, n], got {list(matrix.shape)}")
        n = matrix.shape[-1]
        if scale_tril is not None:
            tril = scale_tril
        else:
            tril = plait.linalg.cholesky(matrix if precision_matrix is None else plait.linalg.inv(matrix))
        freedom = df.to(tril.dtype) if isinstance(df, Tensor) else tril.new_full((), float(df))
        batch = plait.broadcast_shapes(tuple(freedom.shape), tuple(tril.shape[:-2]))
        self.df, self.scale_tril = freedom.expand(batch), tril.expand(*batch, n, n)
        super().__init__(batch, (n, n), validate_args)
        self._check("df", self.df, self.df > n - 1, f"above {n - 1}")
        diagonal = self.scale_tril.diagonal(dim1=-2, dim2=-1)
        self._check("scale_tril", self.scale_tril, diagonal > 0, "positive on its diagonal")

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances of the vectors."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """Their inverse."""
        return plait.linalg.inv(self.covariance_matrix)

    def _df(self) -> Tensor:
        return self.df.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self) -> Tensor:
        return self._df() * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """Where the density is highest, NaN where df is at most n + 1."""
        factor = self.df - self.scale_tril.shape[-1] - 1
        factor = plait.where(factor > 0, factor, math.nan)
        return factor.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._df() * (v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: int | None = None) -> Tensor:
        """Returns draws through which gradients reach the parameters, by Bartlett's decomposition.

        Args:
            sample_shape: the shape of the draws
            max_try_correction: has no effect: no draw is singular
        """
        shape, n, like = self._extended_shape(sample_shape), self.scale_tril.shape[-1], self.scale_tril
        half = (self.df.unsqueeze(-1) - plait.arange(n, dtype=like.dtype, device=like.device)) / 2
        log_roots = (log_gamma(half.expand(shape[:-1])) + math.log(2)) / 2  # of chi-squared variables
        noise = plait.randn(shape, dtype=like.dtype, device=like.device).tril(-1)
        lower = self.scale_tril @ (noise + log_roots.exp().diag_embed())
        return lower @ lower.mT

    def _log_det(self) -> Tensor:
        """Returns half the logarithm of the determinant of the covariances."""
        return self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        n, df = self.scale_tril.shape[-1], self.df
        lower = plait.linalg.cholesky(value)
        batch = plait.broadcast_shapes(tuple(lower.shape[:-2]), tuple(self._batch_shape))
        lower, tril = lower.expand(*batch, n, n), self.scale_tril.expand(*batch, n, n)
        inside = plait.linalg.solve_triangular(tril, lower, upper=False).square().sum((-2, -1))
        log_det = lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        norm = df * (n * math.log(2) / 2 + self._log_det()) + plait.special.multigammaln(df / 2, n)
        return (df - n - 1) * log_det - inside / 2 - norm

    def entropy(self) -> Tensor:
        n, df = self.scale_tril.shape[-1], self.df
        steps = plait.arange(n, dtype=df.dtype, device=df.device) / 2
        digammas = (df.unsqueeze(-1) / 2 - steps).digamma().sum(-1)
        known = (n + 1) * (n * math.log(2) / 2 + self._log_det()) + plait.special.multigammaln(df / 2, n)
        return known - (df - n - 1) / 2 * digammas + df * n / 2

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        tril = self.scale_tril.expand(*batch_shape, *self.scale_tril.shape[-2:])
        return Wishart(self.df.expand(batch_shape), scale_tril=tril, validate_args=False)

    def _shown(self) -> dict[str, Tensor]:
        return {"df": self.df, "scale_tril": self.scale_tril}


class LKJCholesky(Distribution):
    """The distribution of lower Cholesky factors of correlations with density proportional to det^(concentration - 1).

    Args:
        dim: the size of the matrices, 2 or more
        concentration: positive: at 1 all correlations are equally likely, above it those near 0 are likelier
        validate_args: whether parameters and values are checked
    """

    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None) -> None:
        if not isinstance(dim, int) or dim < 2:
            raise ValueError(f"LKJCholesky: want dim to be a whole number of 2 or more, got {dim!r}")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        self._check("concentration", self.concentration, self.concentration > 0, "positive")

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape, like = self._extended_shape(sample_shape), self.concentration
        with plait.no_grad():
            # Row i is a direction in i dimensions, and how much of its length they have, a beta variable.
            steps = plait.arange(self.dim - 1, dtype=like.dtype, device=like.device)
            other = like.unsqueeze(-1) + (self.dim - 2 - steps) / 2
            share = Beta(steps / 2 + 0.5, other, validate_args=False).sample(sample_shape).unsqueeze(-1)
            way = plait.randn((*shape[:-2], self.dim - 1, self.dim), dtype=like.dtype, device=like.device).tril()
            rows = share.sqrt() * way / way.norm(dim=-1, keepdim=True)
            lower = plait.nn.functional.pad(rows, (0, 0, 1, 0))
            rest = (1 - lower.square().sum(-1)).clamp(min=plait.finfo(lower.dtype).tiny)
            return lower + rest.sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        a, n = self.concentration, self.dim
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        order = 2 * (a - 1).unsqueeze(-1) + n - plait.arange(2, n + 1, dtype=a.dtype, device=a.device)
        full = a + (n - 1) / 2
        norm = (n - 1) / 2 * math.log(math.pi) + plait.special.multigammaln(full - 0.5, n - 1) - full.lgamma() * (n - 1)
        return (order * diagonal.log()).sum(-1) - norm

    def _expanded(self, batch_shape: plait.Size) -> Distribution:
        return LKJCholesky(self.dim, self.concentration.expand(batch_shape), validate_args=False)

    def _shown(self) -> dict[str, Tensor]:
        return {"concentration": self.concentration}
