"""What all distributions have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import plait
from plait import Size, Tensor
from plait.distributions.constraints import Constraint, is_dependent
from plait.distributions.utils import broadcast_all, lazy_property


class Distribution:
    """A distribution over tensors of shape event_shape, one for each place of batch_shape.

    Args:
        batch_shape: the shape of the parameters
        event_shape: the shape of one draw
        validate_args: whether parameters and values are checked, which waits for them; True unless it is set
    """

    has_rsample = False
    _validate_args = True
    arg_constraints: dict[str, Any] = {}  # noqa: RUF012  # of a program's subclasses they are checked by it
    has_enumerate_support: Any = False  # whether `enumerate_support` returns all values of a draw

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "enumerate_support" in vars(cls) and "has_enumerate_support" not in vars(cls):
            cls.has_enumerate_support = True

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        own = next(c for c in type(self).__mro__ if "arg_constraints" in vars(c)).__module__
        checks = self._validate_args and not own.startswith("plait.distributions")  # whose families do so themselves
        for name, constraint in self.arg_constraints.items() if checks else ():
            made_later = name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property)
            if not is_dependent(constraint) and not made_later:
                value = getattr(self, name)
                self._check(name, value, constraint.check(value), constraint.want)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether distributions that are made later check parameters and values."""
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """Which values draws have."""
        raise NotImplementedError(f"{type(self).__name__} has no support")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The likeliest value, or where the density is highest."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each element."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Returns draws of shape [*sample_shape, *batch_shape, *event_shape], without a gradient."""
        with plait.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Returns draws through which gradients reach the parameters.

        Raises:
            NotImplementedError: for a distribution with has_rsample False
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no rsample, draws with a gradient; use sample and log_prob"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Returns the logarithm of the probability or density at a value, of its shape without the event's."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Returns the probability of a draw of at most the value."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Returns below what a draw is with the given probability."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def entropy(self) -> Tensor:
        """Returns the entropy, in nats, of shape batch_shape."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """Returns the exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns all values of a draw, in a new first dimension, before the batch shape; of size 1 each if not expand.

        Raises:
            NotImplementedError: if there are infinitely many, or another number in each place of the batch
        """
        raise NotImplementedError(f"{type(self).__name__} has no enumerate_support")

    def _support(self, values: Tensor, expand: bool) -> Tensor:
        """Returns values [n] before the batch shape."""
        values = values.reshape(-1, *(1 for _ in self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Distribution:
        """Returns the distribution with its parameters broadcast to another batch shape.

        Args:
            batch_shape: the shape
            _instance: what a subclass's expand fills in and returns
        """
        made = self._expanded(Size(batch_shape))
        made._validate_args = self._validate_args
        if _instance is None and type(made) is type(self):
            return made
        new: Distribution = self._get_checked_instance(type(made), _instance)
        vars(new).update({k: v for k, v in vars(made).items() if k not in vars(new)})
        return new

    def _expanded(self, batch_shape: Size) -> Distribution:
        """Returns the family's distribution with another batch shape."""
        raise NotImplementedError(f"{type(self).__name__} has no expand")

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _check(self, name: str, value: Tensor, right: Any, want: str) -> None:
        """Raises ValueError unless `right`, of a parameter, holds for all elements."""
        if self._validate_args and not bool(plait.all(right)):
            raise ValueError(f"{type(self).__name__}: {name} must be {want}, got {value}")

    def _check_shape(self, value: Tensor) -> None:
        """Raises ValueError unless a value has the shape of draws."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError(f"{type(self).__name__}: the value must be a tensor, got {type(value).__name__}")
        event = len(self._event_shape)
        if event and tuple(value.shape[-event:]) != tuple(self._event_shape):
            raise ValueError(
                f"{type(self).__name__}: the value must end with the event's shape {list(self._event_shape)}, "
                f"got {list(value.shape)}"
            )
        plait.broadcast_shapes(tuple(value.shape[: value.ndim - event]), tuple(self._batch_shape))

    def _check_value(self, value: Tensor) -> None:
        """Raises ValueError unless a value has the shape of draws, and is in the support."""
        self._check_shape(value)
        if self._validate_args and not bool(plait.all(self.support.check(value))):
            raise ValueError(f"{type(self).__name__}: the value must be {self.support.want}, got {value}")

    _validate_sample = _check_value

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """Returns an object for what `expand` of a subclass returns."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"{type(self).__name__}, which has an __init__ of its own, needs an expand of its own too"
            )
        return type(self).__new__(type(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}: {v if v.numel() == 1 else v.shape}" for k, v in self._shown().items())
        return f"{type(self).__name__}({shown})"

    def _shown(self) -> dict[str, Tensor]:
        return {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}


class Elementwise(Distribution):
    """A distribution of each element by itself, whose parameters, named in `_names`, have the batch shape."""

    _names: tuple[str, ...] = ()

    def _set(self, validate_args: bool | None, **values: Tensor | float) -> None:
        """Keeps the parameters, broadcast to one shape."""
        self._names = tuple(values)
        for name, value in zip(values, broadcast_all(*values.values()), strict=True):
            setattr(self, name, value)
        Distribution.__init__(self, self._first.shape, validate_args=validate_args)

    @property
    def _first(self) -> Tensor:
        first: Tensor = getattr(self, self._names[0])
        return first

    def _must(self, name: str, lowest: float = 0.0) -> None:
        """Raises ValueError unless a parameter is above a bound, or a number if that is -inf."""
        value = getattr(self, name)
        want = "real" if lowest == -math.inf else "positive" if lowest == 0 else f"above {lowest}"
        self._check(name, value, ~value.isnan() if lowest == -math.inf else value > lowest, want)

    def _uniform(self, sample_shape: Sequence[int]) -> Tensor:
        """Returns uniform draws, from above 0 to below 1."""
        like = self._first
        u = plait.rand(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device)
        return u.clamp(min=plait.finfo(u.dtype).tiny)

    def _expanded(self, batch_shape: Size) -> Distribution:
        made = copy(self)
        for name in self._names:
            setattr(made, name, getattr(self, name).expand(batch_shape))
        made._batch_shape = batch_shape
        return made

    def _shown(self) -> dict[str, Tensor]:
        return {name: vars(self)[name] for name in self._names if name in vars(self)}


class ExponentialFamily(Distribution):
    """The base of families with densities exp(t(x) . theta - F(theta) + k(x)), whose entropies follow from F.

    Subclasses have `_natural_params`, a tuple of tensors theta; `_log_normalizer`, F of these; and
    `_mean_carrier_measure`, the mean of k(x). The families of this package have formulas of their own.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no _natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Tensor | float:
        raise NotImplementedError(f"{type(self).__name__} has no _mean_carrier_measure")

    def _normalizer(self) -> tuple[tuple[Tensor, ...], Tensor, tuple[Tensor, ...]]:
        """Returns theta, F and its derivatives."""
        theta = tuple(p if p.requires_grad else p.detach().requires_grad_() for p in self._natural_params)
        with plait.enable_grad():
            log = self._log_normalizer(*theta)
            return theta, log, plait.autograd.grad(log.sum(), theta, create_graph=True)

    def entropy(self) -> Tensor:
        theta, log, means = self._normalizer()
        for p, mean in zip(theta, means, strict=True):
            log = log - (p * mean).reshape(*self._batch_shape, -1).sum(-1)
        return log - self._mean_carrier_measure
