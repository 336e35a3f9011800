"""Losses of micro-batches, and their weights in the loss of the batch.

If the loss is a mean over samples, the batch's loss is the sum of the micro-batches' means, each weighted by its share
of the samples. Cross entropies are means over the targets that are not ignored, weighted by class. For these,
micro-batches compute sums, which are divided by the total weight of the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn.functional._loss_reduction import mean_over, watching
from plait.nn.modules.loss import CrossEntropyLoss, NLLLoss
from plait.nn.modules.module import Module


def only_loss(name: str, value: Any) -> Tensor:
    """Returns what a `loss_fn` has returned.

    Raises:
        TypeError: unless it is a tensor.
    """
    if isinstance(value, Tensor):
        return value
    raise TypeError(
        f"{name}: want a loss_fn that returns a tensor, the loss, got {type(value).__name__}; keep other values in an "
        "object of the program's, or add them up in the loss"
    )


class MicroLosses:
    """The losses of a batch's micro-batches.

    Args:
        name: the caller, for error messages
        loss_fn: returns the loss of an output and a target
        reduction: "mean" or "sum"
        target: the target of the whole batch, on the device of the outputs
        sizes: the number of samples of each micro-batch
    """

    def __init__(self, name: str, loss_fn: Any, reduction: str, target: Any, sizes: Sequence[int]) -> None:
        self._name, self._loss_fn, self._sizes = name, loss_fn, list(sizes)
        self.weights = [1.0 if reduction == "sum" else n / sum(sizes) for n in sizes]
        self._mean = reduction == "mean"
        self._total_weights: list[list[Tensor]] = [[] for _ in sizes]  # by micro-batch, the total weights of its means
        self._sum: Callable[[Tensor, Tensor], Tensor] | None = None
        self._total: Tensor | None = None
        known = _cross_entropy(loss_fn) if self._mean and isinstance(target, Tensor) else None
        if known is not None:
            function, options = known
            options["weight"] = _on(options.get("weight"), target)
            self._sum = functools.partial(function, **{**options, "reduction": "sum"})
            self._over = options["weight"], options.get("ignore_index", -100)
            self._total = self._mean_over(target)
            if self._total is None:
                self._sum = None
            else:
                self.weights = [1.0] * len(sizes)

    def __call__(self, micro: int, output: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Returns a micro-batch's contribution to the batch's loss before weighting, and its own loss."""
        if self._sum is not None:
            value = self._sum(output, target)
            assert self._total is not None
            return value / self._total.to(value.dtype), value.detach() / self._mean_over(target)
        with watching(self._total_weights[micro] if self._mean else None):
            value = only_loss(self._name, self._loss_fn(output, target))
        return value, value.detach()

    @no_grad()
    def _mean_over(self, target: Tensor) -> Any:
        return mean_over(target, *self._over)

    def check(self) -> None:
        """Raises an error if the micro-batches' means had total weights that are not proportional to their sizes."""
        counts = [c for c in self._total_weights if c]
        if not counts:
            return
        with no_grad():
            rows = [_ops.stack([t.to("cpu") for t in c]).tolist() for c in counts]
        if len(counts) != len(self._sizes) or any(
            len(r) != len(rows[0])
            or any(abs(a * m - b * n) > 1e-6 * abs(b * n) for a, b in zip(r, rows[0], strict=True))
            for r, n, m in zip(rows, self._sizes, [self._sizes[0]] * len(rows), strict=True)
        ):
            raise ValueError(
                f"{self._name}: the loss is a mean over the targets that are not ignored, times the weights of "
                f"classes, and micro-batches of {self._sizes} samples have {rows} of that: their mean is another. Give "
                "nn.CrossEntropyLoss, nn.NLLLoss or the function itself as loss_fn, or a loss with reduction='sum'"
            )


def place_loss(loss_fn: Any, device: Any, owned: set[int]) -> None:
    """Moves the tensors of a loss module to the device of the outputs, except those that belong to a stage."""
    if not isinstance(loss_fn, Module):
        return
    with no_grad():
        for m in loss_fn.modules():
            for p in m._parameters.values():
                if p is not None and id(p) not in owned:
                    p.data = p.data.to(device)
            for name, b in m._buffers.items():
                if b is not None and id(b) not in owned:
                    m._buffers[name] = b.to(device)


def _cross_entropy(loss_fn: Any) -> tuple[Callable[..., Tensor], dict[str, Any]] | None:
    """Returns the function and options of a mean cross entropy or NLL loss; None for other losses."""
    if isinstance(loss_fn, functools.partial):
        inner = _cross_entropy(loss_fn.func)
        others = {"input", "target", "size_average", "reduce"} & set(loss_fn.keywords)
        if inner is None or loss_fn.args or others or loss_fn.keywords.get("reduction", "mean") != "mean":
            return None
        return inner[0], {**inner[1], **loss_fn.keywords}
    if loss_fn in (F.cross_entropy, F.nll_loss):
        return loss_fn, {}
    forward = getattr(type(loss_fn), "forward", None)
    if not isinstance(loss_fn, Module) or loss_fn._forward_hooks or getattr(loss_fn, "reduction", "") != "mean":
        return None
    options = {"weight": getattr(loss_fn, "weight", None), "ignore_index": getattr(loss_fn, "ignore_index", -100)}
    if forward is CrossEntropyLoss.forward:
        return F.cross_entropy, {**options, "label_smoothing": loss_fn.label_smoothing}
    return (F.nll_loss, options) if forward is NLLLoss.forward else None


def _on(weight: Tensor | None, like: Tensor) -> Tensor | None:
    return weight if weight is None else weight.to(like.device)
