"""How a tensor lies along a dimension of a mesh."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

_REPLICATE, _SHARD, _PARTIAL = range(3)  # the engine's numbers
_COMBINATIONS = ("sum", "avg", "product", "max", "min")


class Placement:
    """How a tensor lies along one dimension of a mesh: `Shard`, `Replicate` or `Partial`."""

    __slots__ = ()

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a part, of dimension `dim` if it is given."""
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        """Whether every rank has all elements."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the elements are combined of the ranks' elements, by `reduce_op` if it is given."""
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part of dimension `dim`. Of n elements and k ranks each has ceil(n / k), as long as they last."""

    dim: int

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Every rank has all elements."""

    def __repr__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True)
class Partial(Placement):
    """The elements are the sums of the ranks' elements, or what else `reduce_op` says: avg, product, max or min."""

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.reduce_op not in _COMBINATIONS:
            raise ValueError(f"Partial: want one of {', '.join(_COMBINATIONS)}, got {self.reduce_op!r}")

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"


def pairs(placements: Sequence[Placement]) -> array[int]:
    """Returns placements as the engine takes them."""
    out = array("q")
    for p in placements:
        if isinstance(p, Shard):
            out.extend((_SHARD, p.dim))
        elif isinstance(p, Partial):
            out.extend((_PARTIAL, _COMBINATIONS.index(p.reduce_op)))
        elif isinstance(p, Replicate):
            out.extend((_REPLICATE, 0))
        else:
            raise TypeError(f"placements: want Shard, Replicate or Partial, got {p!r}")
    return out


def from_pairs(numbers: Sequence[int]) -> tuple[Placement, ...]:
    """Returns the placements that `pairs` gives the numbers of."""
    out: list[Placement] = []
    for kind, value in zip(numbers[::2], numbers[1::2], strict=True):
        if kind == _SHARD:
            out.append(Shard(value))
        elif kind == _PARTIAL:
            out.append(Partial(_COMBINATIONS[value]))
        else:
            out.append(Replicate())
    return tuple(out)
