"""What transforms of functions share: the state around them, and the arguments by which they derive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from plait import _core, _ops
from plait._autograd import backward as _autograd
from plait._autograd import batch as _batch
from plait._autograd import forward as _forward
from plait._engine.pytree import flatten, tree_map
from plait._modes import is_grad_enabled
from plait._tensor import Tensor

Func = Callable[..., Any]


class _Local(threading.local):
    depth = 0


local = _Local()


def active() -> bool:
    """Returns whether the thread does a transform, or derives forwards."""
    return local.depth > 0 or bool(_batch.levels()) or bool(_forward.levels())


class Transform(_core.Scope):
    """What a transform does; `nested` says whether the thread does it in another, `recorded` whether operations around
    it are recorded.
    """

    nested = recorded = False

    def _begin(self) -> int:
        before = local.depth
        self.nested, self.recorded = before > 0, is_grad_enabled()
        local.depth = before + 1
        return before

    def _end(self, before: int) -> None:
        local.depth = before


def tensors_of(name: str, leaves: Sequence[Any]) -> list[Tensor]:
    """Returns the leaves of a tree, which must be tensors."""
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{name}: want tensors, got {type(leaf).__name__} {leaf!r:.60}")
    return list(leaves)


class Inputs:
    """The arguments of a function by which it is derived, as tensors that require a gradient."""

    def __init__(self, name: str, tree: Any, transform: Transform) -> None:
        leaves, self.build = flatten(tree)
        given = [_batch.everywhere(x) for x in tensors_of(name, leaves)]
        self.tied = transform.nested or any(x.requires_grad for x in given)  # to the graph around the transform
        self.record = self.tied
        self.watched = transform.recorded and not self.tied  # what else the function depends on decides
        self.leaves = [x.view_as(x) if x.requires_grad else _forward.bare(x).requires_grad_() for x in given]

    def derives(self, *returned: Any) -> None:
        """Takes note of what the function returns. Results are recorded too where it depends on other tensors that
        require a gradient, such as the parameters of a module.
        """
        if self.watched:
            tensors = [t for t in flatten(returned)[0] if isinstance(t, Tensor) and t.requires_grad]
            self.record = _autograd.reaches_others(tensors, self.leaves)

    def grads(self, outputs: Sequence[Tensor], vectors: Sequence[Tensor], record: bool) -> list[Tensor]:
        """Returns the products of vectors with the Jacobians of outputs, zeros where they do not depend on an input."""
        pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
        if not pairs:
            return [_ops.zeros_like(x) for x in self.leaves]
        found = _autograd.grad(
            [y for y, _ in pairs],
            self.leaves,
            [v for _, v in pairs],
            retain_graph=True,
            create_graph=record,
            materialize_grads=True,
        )
        return [self._outside(x, record) for x in found]  # type: ignore[arg-type]

    def result(self, tree: Any) -> Any:
        """Returns a result of the function for the caller: with its graph only if that is recorded."""
        return tree_map(lambda t: self._outside(t, self.record) if isinstance(t, Tensor) else t, tree)

    def _outside(self, t: Tensor, record: bool) -> Tensor:
        if not t.requires_grad or (record and (self.tied or _autograd.reaches_others([t], self.leaves))):
            return t
        return _forward.bare(t)


def pick(args: Sequence[Any], argnums: int | Sequence[int]) -> Any:
    """Returns the arguments by which a function is derived: one, or a tuple."""
    return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)


def put(args: Sequence[Any], argnums: int | Sequence[int], values: Any) -> list[Any]:
    """Returns the arguments with others in the places of those that `pick` returns."""
    out = list(args)
    places = [(argnums, values)] if isinstance(argnums, int) else zip(argnums, values, strict=True)
    for i, v in places:
        out[i] = v
    return out


def split_aux(name: str, out: Any, has_aux: bool) -> tuple[Any, Any]:
    """Returns what is derived of what a function has returned, and the rest, None without has_aux."""
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"{name}: with has_aux the function must return a pair, got {type(out).__name__}")
    return out
