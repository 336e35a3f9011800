"""Functions of random variables that can be undone, with the logarithms of their slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plait
from plait import Tensor
from plait.nn import functional as F


class Transform:
    """A function with an inverse, element by element; subclasses have _call, _inverse and log_abs_det_jacobian.

    Args:
        cache_size: has no effect: inverses are computed
    """

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
        return _Inverse(self)

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        return plait.Size(shape)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx| of each element, where y is the function of x."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, of: Transform) -> None:
        super().__init__()
        self._of = of

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
        return self._of.forward_shape(shape)

    def _call(self, x: Tensor) -> Tensor:
        return self._of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return -self._of.log_abs_det_jacobian(y, x)


class ExpTransform(Transform):
    """exp(x)."""

    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return x


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        info = plait.finfo(x.dtype)
        return x.sigmoid().clamp(info.tiny, 1 - info.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        info = plait.finfo(y.dtype)
        y = y.clamp(info.tiny, 1 - info.eps)
        return y.log() - plait.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(Transform):
    """tanh(x); the slope is computed so that it does not vanish for large x."""

    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return plait.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |dy/dx|."""
        return 2 * (math.log(2) - x - F.softplus(-2 * x))


class AffineTransform(Transform):
    """loc + scale x.

    Args:
        loc: what is added
        scale: what x is multiplied by
        event_dim: must be 0: slopes are those of elements
        cache_size: has no effect
    """

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        if event_dim:
            raise NotImplementedError(f"AffineTransform: event_dim must be 0, got {event_dim}")
        self.loc, self.scale = loc, scale

    @property
    def sign(self) -> Tensor | int:
        """The sign of scale."""
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape to which loc, scale and a tensor of the given shape broadcast."""
        own = (tuple(v.shape) for v in (self.loc, self.scale) if isinstance(v, Tensor))
        return plait.Size(plait.broadcast_shapes(tuple(shape), *own))

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns log |scale|."""
        if isinstance(self.scale, Tensor):
            return self.scale.abs().log().expand(x.shape)
        return plait.full_like(x, math.log(abs(self.scale)))


class ComposeTransform(Transform):
    """One transform after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)

    @property
    def sign(self) -> Tensor | int:
        """The product of the parts'."""
        sign: Tensor | int = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    def forward_shape(self, shape: Sequence[int]) -> plait.Size:
        """Returns the shape of the function of a tensor of the given one."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return plait.Size(shape)

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the sum of the parts'."""
        total = plait.zeros_like(x)
        for part in self.parts:
            after = part(x)
            total = total + part.log_abs_det_jacobian(x, after)
            x = after
        return total
