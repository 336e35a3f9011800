"""How a tensor lies along a dimension of a mesh."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index

from plait._engine.runtime import address, check

_REPLICATE, _SHARD, _PARTIAL = range(3)  # the engine's numbers
_NUMBERS, _MOST = 3, 8  # numbers of a placement, and placements of a tensor
_COMBINATIONS = ("sum", "avg", "product", "max", "min")


class Placement:
    """How a tensor lies along one dimension of a mesh: `Shard`, `Replicate`, `Partial` or `_StridedShard`."""

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

    def __str__(self) -> str:
        return f"S({self.dim})"


class _StridedShard(Placement):
    """Each rank has a part of each of `split_factor` pieces of dimension `dim`: an interleaved shard.

    If a later dimension of the mesh has divided the dimension before, as tensor parallelism before `fully_shard`, that
    is `Shard(dim)` along the later one, and `split_factor` is the number of its ranks, or the product of several. Each
    rank then has one range, of the size that dividing in this order gives it. An instance is no `Shard`, and `is_shard`
    is false, as in PyTorch.

    Args:
        dim: the dimension
        split_factor: the number of pieces
        sf: another name of it
    """

    __slots__ = ("_dim", "_factor")

    def __init__(self, dim: int, *, split_factor: int = 1, sf: int | None = None) -> None:
        if sf is not None and split_factor != 1:
            raise TypeError("_StridedShard: got both split_factor and sf")
        self._dim, self._factor = index(dim), index(split_factor if sf is None else sf)
        if self._factor < 1:
            raise ValueError(f"_StridedShard: want a split_factor of at least 1, got {self._factor}")

    @property
    def dim(self) -> int:
        """The dimension."""
        return self._dim

    @property
    def split_factor(self) -> int:
        """The number of pieces."""
        return self._factor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StridedShard) and (self.dim, self.split_factor) == (other.dim, other.split_factor)

    def __hash__(self) -> int:
        return hash((self.dim, self.split_factor))

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Every rank has all elements."""

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """The elements are the sums of the ranks' elements, or what else `reduce_op` says: avg, product, max or min."""

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.reduce_op not in _COMBINATIONS:
            raise ValueError(f"Partial: want one of {', '.join(_COMBINATIONS)}, got {self.reduce_op!r}")

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def packed(placements: Sequence[Placement]) -> tuple[array[int], int]:
    """Returns placements as the engine takes them, and how many there are."""
    out = array("q")
    for p in placements:
        if isinstance(p, Shard):
            out.extend((_SHARD, p.dim, 0))
        elif isinstance(p, _StridedShard):
            out.extend((_SHARD, p.dim, p.split_factor))
        elif isinstance(p, Partial):
            out.extend((_PARTIAL, _COMBINATIONS.index(p.reduce_op), 0))
        elif isinstance(p, Replicate):
            out.extend((_REPLICATE, 0, 0))
        else:
            raise TypeError(f"placements: want Shard, Replicate or Partial, got {p!r}")
    return out, len(out) // _NUMBERS


def unpacked(write: Callable[[int, int], int]) -> tuple[Placement, ...]:
    """Returns the placements that a function of the engine writes, to an address and at most so many."""
    numbers = array("q", bytes(8 * _NUMBERS * _MOST))
    return of_numbers(numbers[: _NUMBERS * check(write(address(numbers), _MOST))])


def of_numbers(numbers: Sequence[int]) -> tuple[Placement, ...]:
    """Returns the placements of which `packed` has made the numbers."""
    out = list[Placement]()
    for i in range(0, len(numbers), _NUMBERS):
        kind, value, factor = numbers[i : i + _NUMBERS]
        if kind == _SHARD:
            out.append(_StridedShard(value, split_factor=factor) if factor else Shard(value))
        elif kind == _PARTIAL:
            out.append(Partial(_COMBINATIONS[value]))
        else:
            out.append(Replicate())
    return tuple(out)
