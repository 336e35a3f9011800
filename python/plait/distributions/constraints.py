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
    """What values have to fulfil. `event_dim` is the number of dimensions that are looked at together."""

    is_discrete = False
    event_dim = 0

    def __init__(
        self,
        name: str | Callable[[], str],
        check: Callable[[Tensor], Tensor],
        event_dim: int = 0,
        is_discrete: bool = False,
        want: str | Callable[[], str] = "",
    ) -> None:
        self._check, self.event_dim, self.is_discrete = check, event_dim, is_discrete
        self._name, self._want = name, want  # functions, where it takes tensors to be read

    @property
    def want(self) -> str:
        """What is wanted, as errors say after "must be"."""
        want = self._want if isinstance(self._want, str) else self._want()
        return want or f"as {self} says"

    def check(self, value: Tensor) -> Tensor:
        """Returns a bool for each element, or vector or matrix: whether it fulfils the constraint."""
        return self._check(value)

    def __repr__(self) -> str:
        return self._name if isinstance(self._name, str) else self._name()


class dependent_property(property):  # noqa: N801
    """A property that returns a constraint by other parameters: `@dependent_property(is_discrete=False, event_dim=0)`.

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
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> dependent_property:
        """Returns the property of a function."""
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: object) -> bool:
    """Whether a constraint depends on other parameters."""
    return constraint is dependent or isinstance(constraint, dependent_property)


def _unknown(x: Tensor) -> Tensor:
    raise ValueError("dependent: it cannot be checked without the parameters that it depends on")


def _bounded(
    kind: str, check: Callable[[Tensor], Tensor], want: str, discrete: bool = False, **bounds: Any
) -> Constraint:
    """Returns a constraint by bounds, which `want` names."""

    def name() -> str:
        return f"{kind}({', '.join(f'{k}={v}' for k, v in bounds.items())})"

    def wanted() -> str:
        return want.format(**{k: f"{v:g}" if isinstance(v, float) else v for k, v in bounds.items()})

    return Constraint(name, check, is_discrete=discrete, want=wanted)


def greater_than(lower_bound: Any) -> Constraint:
    """Returns the constraint of being greater than a bound."""
    return _bounded("GreaterThan", lambda x: x > lower_bound, "above {lower_bound}", lower_bound=lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Returns the constraint of being a bound or greater."""
    return _bounded("GreaterThanEq", lambda x: x >= lower_bound, "{lower_bound} or more", lower_bound=lower_bound)


def less_than(upper_bound: Any) -> Constraint:
    """Returns the constraint of being less than a bound."""
    return _bounded("LessThan", lambda x: x < upper_bound, "below {upper_bound}", upper_bound=upper_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Returns the constraint of being between two bounds, or one of them."""
    return _bounded(
        "Interval",
        lambda x: (x >= lower_bound) & (x <= upper_bound),
        "from {lower_bound} to {upper_bound}",
        lower_bound=lower_bound,
        upper_bound=upper_bound,
    )


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Returns the constraint of being between two bounds, or the lower one."""
    return _bounded(
        "HalfOpenInterval",
        lambda x: (x >= lower_bound) & (x < upper_bound),
        "from {lower_bound} to below {upper_bound}",
        lower_bound=lower_bound,
        upper_bound=upper_bound,
    )


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Returns the constraint of being a whole number between two bounds, or one of them."""
    return _bounded(
        "IntegerInterval",
        lambda x: (x % 1 == 0) & (x >= lower_bound) & (x <= upper_bound),
        "a whole number from {lower_bound} to {upper_bound}",
        True,
        lower_bound=lower_bound,
        upper_bound=upper_bound,
    )


def independent(base_constraint: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Returns the constraint that a base has for elements, of as many more dimensions together."""
    n = reinterpreted_batch_ndims
    if n < 0:
        raise ValueError(f"independent: want 0 or more dimensions, got {n}")
    if not n:
        return base_constraint

    def check(x: Tensor) -> Tensor:
        right = base_constraint.check(x)
        return right.reshape(*right.shape[: right.ndim - n], -1).all(-1)

    events, discrete = base_constraint.event_dim + n, base_constraint.is_discrete
    return Constraint(
        lambda: f"IndependentConstraint({base_constraint}, {n})", check, events, discrete, lambda: base_constraint.want
    )


def _joined(cseq: Sequence[Constraint], pieces: Sequence[Tensor], dim: int, together: Callable[..., Tensor]) -> Tensor:
    """Returns whether pieces fulfil a constraint each, joined along a dimension from the right, or for all together."""
    most = max((c.event_dim for c in cseq), default=0)
    right = []
    for c, piece in zip(cseq, pieces, strict=True):
        r = c.check(piece)
        right.append(r.reshape(*r.shape[: r.ndim - (most - c.event_dim)], -1).all(-1) if most > c.event_dim else r)
    return together(right, dim + most) if dim + most < 0 else pile(right).all(0)


def cat(cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> Constraint:
    """Returns the constraint that the pieces of a tensor along a dimension fulfil one each."""
    sizes = [1] * len(cseq) if lengths is None else list(lengths)
    if len(sizes) != len(cseq):
        raise ValueError(f"cat: want a length for each of {len(cseq)} constraints, got {len(sizes)}")

    def check(x: Tensor) -> Tensor:
        return _joined(cseq, x.split(sizes, dim), dim if dim < 0 else dim - x.ndim, join)

    most = max((c.event_dim for c in cseq), default=0)
    return Constraint(lambda: f"Cat({list(cseq)}, dim={dim})", check, most, any(c.is_discrete for c in cseq))


def stack(cseq: Sequence[Constraint], dim: int = 0) -> Constraint:
    """Returns the constraint that the slices of a tensor along a dimension fulfil one each."""

    def check(x: Tensor) -> Tensor:
        return _joined(cseq, x.unbind(dim), dim if dim < 0 else dim - x.ndim, pile)

    most = max((c.event_dim for c in cseq), default=0)
    if 0 < -dim <= most:  # among the dimensions that belong together
        most += 1
    return Constraint(lambda: f"Stack({list(cseq)}, dim={dim})", check, most, any(c.is_discrete for c in cseq))


def _integers_from(lower_bound: int) -> Constraint:
    name = f"IntegerGreaterThan(lower_bound={lower_bound})"
    want = f"a whole number of {lower_bound} or more"
    return Constraint(name, lambda x: (x % 1 == 0) & (x >= lower_bound), is_discrete=True, want=want)


def multinomial(upper_bound: int) -> Constraint:
    """Returns the constraint of vectors of whole numbers of 0 or more, with a given sum."""
    return Constraint(
        f"Multinomial(upper_bound={upper_bound})",
        lambda x: ((x % 1 == 0) & (x >= 0)).all(-1) & (x.sum(-1) == upper_bound),
        1,
        True,
        f"whole numbers of 0 or more, with the sum {upper_bound}",
    )


def _is_symmetric(x: Tensor) -> Tensor:
    near = (x - x.mT).abs() <= 1e-6 + 1e-5 * x.mT.abs()
    return near.all(-1).all(-1)


def _is_simplex(x: Tensor) -> Tensor:
    return (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6)


def _is_one_hot(x: Tensor) -> Tensor:
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


def _is_square(x: Tensor) -> Tensor:
    return x.new_full(x.shape[:-2], x.shape[-1] == x.shape[-2], dtype=bool_)


def _is_corr_cholesky(x: Tensor) -> Tensor:
    near = (x.square().sum(-1) - 1).abs() < 10 * x.shape[-1] * finfo(x.dtype).eps
    return near.all(-1) & lower_cholesky.check(x)


dependent = Constraint("Dependent()", _unknown)
real = Constraint("Real()", lambda x: ~x.isnan(), want="real")
real_vector = Constraint("IndependentConstraint(Real(), 1)", lambda x: (~x.isnan()).all(-1), 1, want="real")
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1), is_discrete=True, want="0 or 1")
one_hot = Constraint("OneHot()", _is_one_hot, 1, True, "1 in one place and 0 elsewhere")
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
positive_integer, nonnegative_integer = _integers_from(1), _integers_from(0)
unit_interval = interval(0.0, 1.0)
simplex = Constraint("Simplex()", _is_simplex, 1, want="0 or more, with the sum 1")
symmetric = Constraint("Symmetric()", _is_symmetric, 2)
lower_triangular = Constraint("LowerTriangular()", lambda x: (x.tril() == x).all(-1).all(-1), 2)
lower_cholesky = Constraint(
    "LowerCholesky()", lambda x: (x.tril() == x).all(-1).all(-1) & (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1), 2
)
positive_semidefinite = Constraint(
    "PositiveSemidefinite()", lambda x: _is_symmetric(x) & (linalg.eigvalsh(x) >= 0).all(-1), 2
)
positive_definite = Constraint(
    "PositiveDefinite()",
    lambda x: _is_symmetric(x) & (linalg.cholesky_ex(x).info == 0),
    2,
    want="a symmetric positive definite matrix",
)
square = Constraint("Square()", _is_square, 2)
corr_cholesky = Constraint("CorrCholesky()", _is_corr_cholesky, 2, want="a Cholesky factor of correlations")
