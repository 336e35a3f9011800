"""Losses. `reduction` is mean, sum or none; size_average and reduce are its older form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from plait import _ops
from plait._autograd import batch as _batch
from plait._engine.runtime import TensorBase
from plait._engine.warnings import warn
from plait._functions._checked import checked
from plait.nn.functional._loss_reduction import class_loss, legacy_reduction, warn_shapes, watched, weighted

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


@checked
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Returns |input - target|."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    warn_shapes("l1_loss", input, target)
    if weight is None:
        return _ops.l1_loss(input, target, reduction)
    total = _ops.sum(_ops.expand_as(weight, input))
    return weighted("l1_loss", _ops.l1_loss(input, target, "none"), weight, reduction, total)


@checked
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Returns (input - target)^2."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    warn_shapes("mse_loss", input, target)
    if weight is None:
        return _ops.mse_loss(input, target, reduction)
    total = _ops.sum(_ops.expand_as(weight, input))
    return weighted("mse_loss", _ops.mse_loss(input, target, "none"), weight, reduction, total)


@checked
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Returns the squared difference over 2 beta where it is below beta, else the absolute one less beta / 2."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    warn_shapes("smooth_l1_loss", input, target)
    if beta == 0:
        return _ops.l1_loss(input, target, reduction)
    return _ops.smooth_l1_loss(input, target, reduction, beta)


@checked
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Returns half the squared difference where it is below delta, else delta * (that less delta / 2)."""
    warn_shapes("huber_loss", input, target)
    if weight is None:
        return _ops.huber_loss(input, target, reduction, delta)
    total = _ops.sum(_ops.expand_as(weight, input))
    return weighted("huber_loss", _ops.huber_loss(input, target, "none", delta), weight, reduction, total)


@checked
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns the cross entropy of logits [N, C, ...] with class indices [N, ...] or probabilities alike."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    # The default goes with indices alone.
    ignored = None if ignore_index < 0 and target.dtype.is_floating_point else ignore_index
    watched(reduction, target, weight, ignored)
    return class_loss(_ops.cross_entropy, input, target, weight, ignored, reduction, label_smoothing)


@checked
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the negative log-likelihood of class indices [N, ...] under log-probabilities [N, C, ...]."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    watched(reduction, target, weight, ignore_index)
    return class_loss(_ops.nll_loss, input, target, weight, ignore_index, reduction)


@checked
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the cross entropy of probabilities with targets of the same shape, between 0 and 1.

    Others are an error where the loss is read, or backward runs.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"binary_cross_entropy: input and target differ, got {list(input.shape)} and {list(target.shape)}"
        )
    return _ops.binary_cross_entropy(input, target, weight, reduction)


@checked
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Returns the cross entropy of sigmoid(input) with targets of the same shape, between 0 and 1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            "binary_cross_entropy_with_logits: input and target differ, "
            f"got {list(input.shape)} and {list(target.shape)}"
        )
    return _ops.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)


@checked
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Returns the divergence (Kullback-Leibler) of log-probabilities from targets; batchmean divides by the batch."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction == "mean":
        warn("kl_div: mean averages over all elements; the divergence is batchmean")
    if reduction == "batchmean":
        total = _ops.kl_div(input, target, "sum", log_target)
        return _ops.div(total, input.shape[0]) if input.ndim else total
    return _ops.kl_div(input, target, reduction, log_target)


@checked
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the negative log-likelihood of counts under Poisson distributions, given their (log) rates."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _ops.poisson_nll_loss(input, target, not log_input, full, eps, reduction)


@checked
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Returns the negative log-likelihood of targets under normal distributions, given their means and variances."""
    if isinstance(var, int | float):
        if var < 0:
            raise ValueError(f"gaussian_nll_loss: variances must not be negative, got {var}")
        var = _ops.full_like(input.detach(), float(var))
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = _ops.unsqueeze(var, -1)
        elif not (input.shape[:-1] == var.shape[:-1] and var.shape[-1:] == (1,)) and any(
            v not in (1, n) for v, n in zip(var.shape[::-1], input.shape[::-1], strict=False)
        ):
            raise ValueError(
                f"gaussian_nll_loss: var does not fit, got shape {list(var.shape)} for input {list(input.shape)}"
            )
    if bool(_ops.any(_ops.lt(_batch.behind(var), 0)).item()):
        raise ValueError("gaussian_nll_loss: variances must not be negative")
    return _ops.gaussian_nll_loss(input, target, var, full, eps, reduction)


@checked
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns x where the target is 1, and max(0, margin - x) where it is -1."""
    return _ops.hinge_embedding_loss(input, target, margin, legacy_reduction(size_average, reduce, reduction))


@checked
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns max(0, -target * (input1 - input2) + margin)."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise ValueError(
            "margin_ranking_loss: want as many dimensions, "
            f"got {list(input1.shape)}, {list(input2.shape)} and {list(target.shape)}"
        )
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _ops.margin_ranking_loss(input1, input2, target, float(margin), reduction)


@checked
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns 1 - cos where the target is 1, and max(0, cos - margin) where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _ops.cosine_embedding_loss(input1, input2, target, float(margin), reduction)


@checked
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns log(1 + exp(-target * input))."""
    return _ops.soft_margin_loss(input, target, legacy_reduction(size_average, reduce, reduction))


@checked
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the hinge loss of scores [N, C] with class indices [N]."""
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: p must be 1 or 2, got {p}")
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _ops.multi_margin_loss(input, target, p, margin, weight, reduction)


@checked
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the hinge loss of scores [N, C] with class indices [N, C], of which those before the first -1 count."""
    return _ops.multilabel_margin_loss(input, target, legacy_reduction(size_average, reduce, reduction))


@checked
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns the mean over the classes of the cross entropy of sigmoid(input) with targets between 0 and 1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _ops.multilabel_soft_margin_loss(input, target, weight, reduction)


@checked
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Returns max(0, |anchor - positive| - |anchor - negative| + margin), with p-norms along the last dimension."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _ops.triplet_margin_loss(anchor, positive, negative, float(margin), float(p), eps, swap, reduction)


@checked
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Returns what `triplet_margin_loss` does, with another distance."""
    distance = distance_function or _ops.pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _ops.minimum(far, distance(positive, negative))
    loss = _ops.relu(_ops.add(_ops.sub(near, far), float(margin)))
    return weighted("triplet_margin_with_distance_loss", loss, None, reduction)


@checked
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Returns the negative log likelihood of labels where repeats are merged and then blanks dropped.

    Args:
        log_probs: logarithms of probabilities [T, N, C], or [T, C] for one sample
        targets: the labels, integers, [N, S], or all of them in one dimension
        input_lengths: how many of the T steps count, for each sample
        target_lengths: how many labels there are, for each sample
        blank: the class that is no label
        reduction: "mean", of each loss over the number of its labels; "sum"; "none"
        zero_infinity: losses of labels for which there are too few steps are 0, not infinite
    """
    inputs, labels = _lengths("input_lengths", input_lengths), _lengths("target_lengths", target_lengths)
    return _ops.ctc_loss(log_probs, targets, inputs, labels, blank, reduction, zero_infinity)


def _lengths(name: str, lengths: Tensor | Sequence[int]) -> list[int]:
    found = lengths.tolist() if isinstance(lengths, TensorBase) else lengths
    found = [found] if isinstance(found, int) else list(found)  # a single one may have no dimension
    if not all(isinstance(n, int) for n in found):
        raise TypeError(f"ctc_loss: {name} must be integers, got {found!r:.60}")
    return found
