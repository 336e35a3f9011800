"""Which transform makes values that fulfil a constraint of real numbers without one: `biject_to` and `transform_to`.

Both are called with a constraint and return a transform, whose inverse is its `inv`. That of `biject_to` is bijective
and knows the slope, which densities need; that of `transform_to` may have several values for one, which optimisation
does not mind. The rate of a distribution is thus made of a free number u by
`transform_to(constraints.positive)(u)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from plait.distributions import constraints
from plait.distributions.constraints import Constraint
from plait.distributions.transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

F = TypeVar("F", bound=Callable[[Any], Transform])


class ConstraintRegistry:
    """A table of functions that make transforms, by the class of the constraint that they are made for."""

    def __init__(self) -> None:
        self._factories: dict[type[Constraint], Callable[[Any], Transform]] = {}

    def register(self, constraint: Constraint | type[Constraint], factory: F | None = None) -> Any:
        """Has a function make the transforms for a class of constraints, and returns it.

        Args:
            constraint: the class, or one of its constraints
            factory: takes a constraint and returns a transform; without it, `register` returns a decorator

        Raises:
            TypeError: if constraint is neither
        """
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(f"register: want constraint to be a Constraint or a class of them, got {constraint!r}")

        def put(factory: F) -> F:
            self._factories[kind] = factory
            return factory

        return put if factory is None else put(factory)

    def __call__(self, constraint: Constraint) -> Transform:
        """Returns the transform to values that fulfil a constraint.

        Raises:
            NotImplementedError: if the constraint's own class is not registered
        """
        factory = self._factories.get(type(constraint))
        if factory is None:
            name = type(constraint).__name__
            raise NotImplementedError(
                f"Cannot transform {name} constraints: no transform is registered for {constraint!r}"
            )
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Constraint | type[Constraint]) -> Callable[[F], F]:
    """Registers a function for constraints in both tables."""

    def put(factory: F) -> F:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return put


@_both(constraints.real)
def _unchanged(constraint: Constraint) -> Transform:
    return identity_transform


@_both(constraints.greater_than, constraints.greater_than_eq)
def _above(constraint: Any) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])


@_both(constraints.less_than)
def _below(constraint: Any) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


@_both(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, int | float) and isinstance(high, int | float) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


@_both(constraints.corr_cholesky)
def _correlations(constraint: Constraint) -> Transform:
    return CorrCholeskyTransform()


biject_to.register(constraints.simplex, lambda constraint: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda constraint: PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda constraint: PositiveDefiniteTransform())


def _register_compositions(of: ConstraintRegistry) -> None:
    """Registers constraints that are made of others, whose transforms are those of the same table."""

    @of.register(constraints.independent)
    def _independent(constraint: Any) -> Transform:
        return IndependentTransform(of(constraint.base_constraint), constraint.reinterpreted_batch_ndims)

    @of.register(constraints.cat)
    def _cat(constraint: Any) -> Transform:
        return CatTransform([of(c) for c in constraint.cseq], constraint.dim, constraint.lengths)

    @of.register(constraints.stack)
    def _stack(constraint: Any) -> Transform:
        return StackTransform([of(c) for c in constraint.cseq], constraint.dim)


_register_compositions(biject_to)
_register_compositions(transform_to)
