"""What all transforms have, and their inverses."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import plait
from plait import Tensor
from plait.distributions import constraints
from plait.distributions.constraints import Constraint


class Transform:
    """A function with an inverse; subclasses have _call, _inverse and log_abs_det_jacobian.

    `domain` and `codomain` say which values it takes and returns; their event_dim says whether it works on elements, 0,
    or on vectors or matrices, 1 or 2. `bijective` says whether the inverse gives back each value.

    Args:
        cache_size: 1 keeps the last argument and its result: for the same tensor, either gives the other back
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    bijective = False

    _inv: Transform | None = None

    def __init__(self, cache_size: int = 0) -> None:
        self._keep(cache_size)
        super().__init__()  # a transform may be a module too

    def _keep(self, cache_size: int) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size!r}")
        self._cache_size = cache_size
        self._cached_x_y: tuple[Tensor | None, Tensor | None] = None, None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_inv": None}

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the function of x."""
        if not self._cache_size:
            return self._call(x)
        kept, y = self._cached_x_y
        if y is None or kept is not x:
            y = self._call(x)
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        """Returns what the function of is y."""
        if not self._cache_size:
            return self._inverse(y)
        x, kept = self._cached_x_y
        if x is None or kept is not y:
            x = self._inverse(y)
            self._cached_x_y = x, y
        return x

    @property
    def sign(self) -> Tensor | int:
        """1 where the function rises, -1 where it falls."""
        raise NotImplementedError(f"{type(self).__name__} has no sign: it does not rise or fall element by element")

    @property
    def inv(self) -> Transform:
        """The inverse, as a transform."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

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
        """Returns the transform with a cache of the given size: itself if it has that."""
        if cache_size == self._cache_size:
            return self
        made = copy.copy(self)
        made._keep(cache_size)
        return made

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


class _InverseTransform(Transform):
    """What undoes a transform."""

    _inv: Transform

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)

    @property
    def domain(self) -> Constraint:  # type: ignore[override]
        """What the transform returns."""
        return self._inv.codomain

    @property
    def codomain(self) -> Constraint:  # type: ignore[override]
        """What the transform takes."""
        return self._inv.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """The transform's."""
        return self._inv.bijective

    @property
    def sign(self) -> Tensor | int:
        """1 where the function rises, -1 where it falls."""
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        """What this one undoes."""
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the inverse of the transform with a cache."""
        return self._inv.with_cache(cache_size).inv

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the inverse of a tensor of the given one."""
        return self._inv.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __hash__(self) -> int:
        return hash((_InverseTransform, self._inv))

    def __call__(self, x: Tensor) -> Tensor:
        """Returns what the transform's function of is x."""
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return -self._inv.log_abs_det_jacobian(y, x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv})"
