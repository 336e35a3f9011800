"""What a loss makes of its elements: reductions, weights, and who is told of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._engine.warnings import warn

if TYPE_CHECKING:
    from plait._tensor import Tensor


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """Returns the reduction that the older arguments say, if one of them is given."""
    if size_average is None and reduce is None:
        return reduction
    size_average = True if size_average is None else size_average
    found = "none" if reduce is False else "mean" if size_average else "sum"
    warn(f"loss: size_average and reduce are superseded; use reduction={found!r}")
    return found


class _Watch(threading.local):
    """A list that gets what means are over, where that is not the number of samples: for batches in parts."""

    found: list[Tensor] | None = None


_watch = _Watch()


@contextmanager
def watching(found: list[Tensor] | None) -> Iterator[None]:
    """Inside, `found` gets, for each mean that is not over samples, by what it divides."""
    before, _watch.found = _watch.found, found
    try:
        yield
    finally:
        _watch.found = before


def mean_over(target: Tensor, weight: Tensor | None, ignored: int | None) -> Tensor | None:
    """Returns what a mean of class indices' losses divides by; None where the targets are probabilities."""
    if target.dtype.is_floating_point:
        return None
    counts = _ops.ne(target, -100 if ignored is None else ignored)
    if weight is None:
        return _ops.sum(counts)
    weight = weight.detach()
    of_each = _ops.take(weight, _ops.clamp(target, 0, weight.shape[0] - 1))
    return _ops.sum(_ops.mul(of_each, counts.to(weight.dtype)))


def watched(reduction: str, target: Tensor, weight: Tensor | None, ignored: int | None) -> None:
    """Tells who is `watching` what the mean of class indices' losses divides by."""
    if reduction == "mean" and _watch.found is not None:
        total = mean_over(target, weight, ignored)
        if total is not None:
            _watch.found.append(total)


class _ClassLosses(threading.local):
    """What computes losses of classes in place of their op, given the op and its arguments."""

    lay: Callable[..., Tensor] | None = None


_class_losses = _ClassLosses()


@contextmanager
def laying_class_losses(lay: Callable[..., Tensor]) -> Iterator[None]:
    """Inside, `lay(op, input, target, weight, ...)` computes `cross_entropy` and `nll_loss`."""
    before, _class_losses.lay = _class_losses.lay, lay
    try:
        yield
    finally:
        _class_losses.lay = before


def class_loss(op: Callable[..., Tensor], *args: Any) -> Tensor:
    """Returns a loss of classes."""
    lay = _class_losses.lay
    return op(*args) if lay is None else lay(op, *args)


def warn_shapes(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warn(
            f"{name}: the target's shape {list(target.shape)} differs from the input's {list(input.shape)}; "
            "they are broadcast, which is often a mistake"
        )


def weighted(name: str, loss: Tensor, weight: Tensor | None, reduction: str, total: Tensor | None = None) -> Tensor:
    """Returns element-wise losses times weights, reduced; the mean is over `total`, or over the number of elements."""
    if weight is not None:
        loss = _ops.mul(loss, weight)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return _ops.sum(loss)
    if reduction != "mean":
        raise ValueError(f"{name}: reduction must be mean, sum or none, got {reduction!r}")
    if total is not None and _watch.found is not None:
        _watch.found.append(total.detach())
    return _ops.mean(loss) if total is None else _ops.div(_ops.sum(loss), total)
