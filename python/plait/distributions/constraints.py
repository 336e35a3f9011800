"""Which values parameters and samples may have: `constraints.positive.check(x)` says it of each element or vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait import linalg
from plait._dtype import bool_, finfo
from plait._ops import cat as join
from plait._ops import stack as pile
from plait._tensor import Tensor

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
    "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
    "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex",
    "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """What values have to fulfil; subclasses have `check`.

    `event_dim` is the number of dimensions that are looked at together, and `is_discrete` whether values are whole
    numbers or classes.
    """

    is_discrete = False
    event_dim = 0
    _want = ""

    @property
    def want(self) -> str:
        """What is wanted, as errors say after "must be"."""
        return self._want or f"as {self} says"

    def check(self, value: Tensor) -> Tensor:
        """Returns a bool for each element, or vector or matrix: whether it fulfils the constraint."""
        raise NotImplementedError(f"{type(self).__name__} has no check")

    def __repr__(self) -> str:
        return f"{type(self).__name__.removeprefix('_')}()"


class _Dependent(Constraint):
    """A constraint by other parameters; called, it returns one that says what is known of it.

    Args:
        is_discrete: whether values are discrete, if that is known
        event_dim: how many dimensions belong together, if that is known
    """

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._known = {"is_discrete": is_discrete, "event_dim": event_dim}

    def _of(self, name: str) -> Any:
        if (value := self._known[name]) is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    is_discrete = property(lambda self: self._of("is_discrete"))  # type: ignore[assignment]
    event_dim = property(lambda self: self._of("event_dim"))  # type: ignore[assignment]

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        given = {"is_discrete": is_discrete, "event_dim": event_dim}
        return _Dependent(**{**self._known, **{k: v for k, v in given.items() if v is not NotImplemented}})

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("dependent: it cannot be checked without the parameters that it depends on")


class dependent_property(property, _Dependent):  # noqa: N801
    """A property that returns a constraint by other parameters: `@dependent_property(is_discrete=False, event_dim=0)`.

    Of a class, it is itself such a constraint.

    Args:
        fn: the function that returns it
        is_discrete: whether values are discrete, if that is known
        event_dim: how many dimensions belong together, if that is known
    """

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[..., Any]) -> dependent_property:  # type: ignore[override]
        """Returns the property of a function."""
        return dependent_property(fn, **self._known)


def is_dependent(constraint: object) -> bool:
    """Whether a constraint depends on other parameters."""
    return isinstance(constraint, _Dependent)


class _Bounded(Constraint):
    """A constraint by bounds, which are its attributes, and which `_want` names."""

    @property
    def want(self) -> str:
        """What is wanted, as errors say after "must be"."""
        return self._want.format(**{k: f"{v:g}" if isinstance(v, float) else v for k, v in vars(self).items()})

    def __repr__(self) -> str:
        bounds = ", ".join(f"{k}={v}" for k, v in vars(self).items())
        return f"{type(self).__name__.removeprefix('_')}({bounds})"


class _LowerBound(_Bounded):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _TwoBounds(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _GreaterThan(_LowerBound):
    """Numbers greater than a bound."""

    _want = "above {lower_bound}"

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_LowerBound):
    """Numbers of a bound or greater."""

    _want = "{lower_bound} or more"

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _IntegerGreaterThan(_LowerBound):
    """Whole numbers of a bound or greater."""

    is_discrete = True
    _want = "a whole number of {lower_bound} or more"

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _LessThan(_Bounded):
    """Numbers less than a bound."""

    _want = "below {upper_bound}"

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(_TwoBounds):
    """Numbers between two bounds, or one of them."""

    _want = "from {lower_bound} to {upper_bound}"

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_TwoBounds):
    """Numbers between two bounds, or the lower one."""

    _want = "from {lower_bound} to below {upper_bound}"

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _IntegerInterval(_TwoBounds):
    """Whole numbers between two bounds, or one of them."""

    is_discrete = True
    _want = "a whole number from {lower_bound} to {upper_bound}"

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _Multinomial(_Bounded):
    """Vectors of whole numbers of 0 or more, with a given sum."""

    is_discrete, event_dim = True, 1
    _want = "whole numbers of 0 or more, with the sum {upper_bound}"

    def __init__(self, upper_bound: int) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return ((value % 1 == 0) & (value >= 0)).all(-1) & (value.sum(-1) == self.upper_bound)


def _last(right: Tensor, n: int) -> Tensor:
    """Returns whether it is right along all of the last n dimensions."""
    return right.flatten(-n).all(-1) if n else right


class _IndependentConstraint(Constraint):
    """What a base wants of elements, of as many more dimensions together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        if reinterpreted_batch_ndims < 0:
            raise ValueError(f"independent: want 0 or more dimensions, got {reinterpreted_batch_ndims}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete

    @property
    def want(self) -> str:
        """What the base wants."""
        return self.base_constraint.want

    def check(self, value: Tensor) -> Tensor:
        return _last(self.base_constraint.check(value), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint}, {self.reinterpreted_batch_ndims})"


def of_more(constraint: Constraint, n: int) -> Constraint:
    """Returns a constraint of n more dimensions together: itself for none."""
    return _IndependentConstraint(constraint, n) if n else constraint


class _Joined(Constraint):
    """What constraints want of parts of a tensor along a dimension, one each."""

    _together: Callable[..., Tensor]

    def __init__(self, cseq: Sequence[Constraint], dim: int) -> None:
        self.cseq, self.dim = list(cseq), dim
        self.event_dim = max((c.event_dim for c in self.cseq), default=0)
        self.is_discrete = any(c.is_discrete for c in self.cseq)

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def check(self, value: Tensor) -> Tensor:
        most = max((c.event_dim for c in self.cseq), default=0)
        parts = zip(self.cseq, self._parts(value), strict=True)
        right = [_last(c.check(part), most - c.event_dim) for c, part in parts]
        dim = (self.dim if self.dim < 0 else self.dim - value.ndim) + most
        return type(self)._together(right, dim) if dim < 0 else pile(right).all(0)

    def __repr__(self) -> str:
        return f"{type(self).__name__.removeprefix('_')}({self.cseq}, dim={self.dim})"


class _Cat(_Joined):
    """What constraints want of the pieces of a tensor along a dimension, one each; of length 1 unless it is said."""

    _together = join

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ValueError(f"cat: want a length for each of {len(self.cseq)} constraints, got {len(self.lengths)}")

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        return value.split(self.lengths, self.dim)


class _Stack(_Joined):
    """What constraints want of the slices of a tensor along a dimension, one each."""

    _together = pile

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)
        if 0 < -dim <= self.event_dim:  # among the dimensions that belong together
            self.event_dim += 1

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        return value.unbind(self.dim)


class _Real(Constraint):
    _want = "real"

    def check(self, value: Tensor) -> Tensor:
        return ~value.isnan()


class _Boolean(Constraint):
    is_discrete = True
    _want = "0 or 1"

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1
    _want = "1 in one place and 0 elsewhere"

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1
    _want = "0 or more, with the sum 1"

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return value.new_full(value.shape[:-2], value.shape[-1] == value.shape[-2], dtype=bool_)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        other = value.mT
        return _last((value - other).abs() <= 1e-6 + 1e-5 * other.abs(), 2)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (linalg.eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    _want = "a symmetric positive definite matrix"

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (linalg.cholesky_ex(value).info == 0)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return _last(value.tril() == value, 2)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    _want = "a Cholesky factor of correlations"

    def check(self, value: Tensor) -> Tensor:
        near = (value.square().sum(-1) - 1).abs() < 10 * value.shape[-1] * finfo(value.dtype).eps
        return near.all(-1) & super().check(value)


greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
independent, cat, stack, multinomial = _IndependentConstraint, _Cat, _Stack, _Multinomial
dependent, real, boolean, one_hot = _Dependent(), _Real(), _Boolean(), _OneHot()
real_vector = independent(real, 1)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
positive_integer, nonnegative_integer = _IntegerGreaterThan(1), _IntegerGreaterThan(0)
simplex, square, symmetric = _Simplex(), _Square(), _Symmetric()
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
