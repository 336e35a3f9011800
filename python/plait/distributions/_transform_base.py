"""What all transforms have, and their inverses."""

from __future__ import annotations

from collections.abc import Sequence

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions.constraints import Constraint


def sum_last(t: Tensor, n: int) -> Tensor:
    """Returns the sum over the last n dimensions."""
    return t.sum(tuple(range(-n, 0))) if n else t


class Transform:
    """A function with an inverse; subclasses have _call, _inverse and log_abs_det_jacobian.

    `domain` and `codomain` say which values it takes and returns; their event_dim says whether it works on elements, 0,
    or on vectors or matrices, 1 or 2. `bijective` says whether the inverse gives back each value.

    Args:
        cache_size: has no effect: inverses are computed
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    bijective = False

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size!r}")

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the function of x."""
        return self._call(x)

    @property
    def sign(self) -> Tensor | int:
        """1 where the function rises, -1 where it falls."""
        raise NotImplementedError(f"{type(self).__name__} has no sign: it does not rise or fall element by element")

    @property
    def inv(self) -> Transform:
        """The inverse, as a transform."""
        return Inverse(self)

    @property
    def event_dim(self) -> int:
        """The number of dimensions that are looked at together.

        Raises:
            ValueError: if the function changes it
        """
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(f"{type(self).__name__}: event_dim changes; use domain.event_dim or codomain.event_dim")
        return self.domain.event_dim

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the transform: there is no cache."""
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size!r}")
        return self

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        return plait.Size(shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the inverse of a tensor of the given one."""
        return plait.Size(shape)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |det dy/dx| of each element, vector or matrix, where y is the function of x."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Inverse(Transform):
    """What undoes a transform."""

    def __init__(self, of: Transform) -> None:
        super().__init__()
        self._of = of
        self.domain, self.codomain, self.bijective = of.codomain, of.domain, of.bijective

    @property
    def sign(self) -> Tensor | int:
        """1 where the function rises, -1 where it falls."""
        return self._of.sign

    @property
    def inv(self) -> Transform:
        """What this one undoes."""
        return self._of

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the inverse of a tensor of the given one."""
        return self._of.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inverse) and self._of == other._of

    def __hash__(self) -> int:
        return hash((Inverse, self._of))

    def _call(self, x: Tensor) -> Tensor:
        return self._of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return -self._of.log_abs_det_jacobian(y, x)
