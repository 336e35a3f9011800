"""The functions of layers that PyTorch also has at its top, where some take their arguments in another order.

Where both have one signature, the function is that of `nn.functional`. Losses take the number of a reduction here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked
from plait._functions._common import into
from plait.nn import functional as F
from plait.nn.functional import (
    adaptive_avg_pool1d,
    avg_pool1d,
    bilinear,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_similarity,
    pairwise_distance,
    pdist,
    pixel_shuffle,
    pixel_unshuffle,
    prelu,
    rms_norm,
    rrelu_,
)

if TYPE_CHECKING:
    from plait._random import Generator
    from plait._tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "alpha_dropout_", "avg_pool1d", "batch_norm",
    "bilinear", "binary_cross_entropy_with_logits", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity",
    "ctc_loss", "dropout", "dropout_", "embedding", "embedding_bag", "feature_alpha_dropout", "feature_alpha_dropout_",
    "group_norm", "hinge_embedding_loss", "instance_norm", "kl_div", "layer_norm", "margin_ranking_loss",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "rms_norm",
    "rrelu", "rrelu_", "threshold", "triplet_margin_loss",
]  # fmt: skip

Ints = int | Sequence[int]

# --- pooling, dropout ---


@checked
def adaptive_max_pool1d(input: Tensor, output_size: Ints) -> tuple[Tensor, Tensor]:
    """Returns the maxima of as many windows as output_size says, and their positions."""
    return F.adaptive_max_pool1d_with_indices(input, output_size)


@checked
def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zeroes elements with probability p and scales the others by 1 / (1 - p)."""
    return F.dropout(input, p, train)


@checked
def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """Does in place what `dropout` does, and returns `input`."""
    return F.dropout(input, p, train, True)


@checked
def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Drops elements such that mean and variance of selu's outputs stay."""
    return F.alpha_dropout(input, p, train)


@checked
def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """Does in place what `alpha_dropout` does, and returns `input`."""
    return F.alpha_dropout(input, p, train, True)


@checked
def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Does what `alpha_dropout` does, with whole channels."""
    return F.feature_alpha_dropout(input, p, train)


@checked
def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """Does in place what `feature_alpha_dropout` does, and returns `input`."""
    return F.feature_alpha_dropout(input, p, train, True)


@checked
def threshold(input: Tensor, threshold: float, value: float, *, out: Tensor | None = None) -> Tensor:
    """Returns x where it exceeds the threshold, else value."""
    return into(out, _ops.threshold, input, threshold, value)


@checked
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Returns x where it is positive, else x times a slope: random in training, else the mean of lower and upper."""
    if generator is None or not training:
        return F.rrelu(input, lower, upper, training)
    return F.rrelu_(_ops.clone(input), lower, upper, training, generator)


# --- normalisation: the weight comes first, and there is no cuDNN to turn off ---


@checked
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Returns what `nn.functional.batch_norm` does; `cudnn_enabled` changes no result."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@checked
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Returns what `nn.functional.instance_norm` does; `cudnn_enabled` changes no result."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@checked
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Returns what `nn.functional.group_norm` does; `cudnn_enabled` changes no result."""
    return F.group_norm(input, num_groups, weight, bias, eps)


@checked
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Returns what `nn.functional.layer_norm` does; `cudnn_enable` changes no result."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


# --- tables: the weight comes first ---


@checked
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Returns the rows of a weight that indices name.

    Args:
        weight: [rows, features]
        indices: of the rows
        padding_idx: a row that gets no gradient; none if negative
        scale_grad_by_freq: divide a row's gradient by how often its index occurs
        sparse: has no effect: gradients are dense
    """
    padding = None if padding_idx < 0 else padding_idx
    return F.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq)


_MODES = ("sum", "mean", "max")


@checked
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the rows of each bag combined, the bag of each index, the bags' sizes, and the places of maxima.

    Args:
        weight: [rows, features]
        indices: of the rows, in one dimension
        offsets: where each bag begins
        scale_grad_by_freq: divide a row's gradient by how often its index occurs
        mode: 0 sum, 1 mean, 2 max
        sparse: has no effect: gradients are dense
        per_sample_weights: factors of the rows, for sums
        include_last_offset: offsets ends with the number of indices
        padding_idx: an index that does not count
    """
    if mode not in (0, 1, 2):
        raise ValueError(f"embedding_bag: mode must be 0 for sum, 1 for mean or 2 for max, got {mode!r}")
    out = F.embedding_bag(
        indices, weight, offsets, None, 2, scale_grad_by_freq, _MODES[mode], sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    begins = offsets[:-1] if include_last_offset else offsets
    places = _ops.arange(0, end=indices.shape[0], dtype=indices.dtype, device=indices.device)
    bags = _ops.sub(_ops.searchsorted(begins, places, False, True), 1)
    counted = _ops.ones_like(bags) if padding_idx is None else _ops.ne(indices, padding_idx % weight.shape[0])
    sizes = _ops.zeros(begins.shape, dtype=indices.dtype, device=indices.device)
    sizes = _ops.index_add(sizes, 0, bags, _ops.to(counted, dtype=indices.dtype))
    if mode != 2:
        return out, bags, sizes, sizes
    best = _ops.eq(_ops.index_select(weight.detach(), 0, indices), _ops.index_select(out.detach(), 0, bags))
    best = _ops.logical_and(best, _ops.unsqueeze(counted, 1))
    shape, none = best.shape, weight.shape[0]
    found = _ops.where(best, _ops.expand(_ops.unsqueeze(indices, 1), shape), none)
    most = _ops.full(out.shape, fill_value=none, dtype=indices.dtype, device=indices.device)
    most = _ops.scatter_reduce(most, 0, _ops.expand(_ops.unsqueeze(bags, 1), shape), found, "amin")
    return out, bags, sizes, _ops.where(_ops.eq(most, none), 0, most)


# --- losses: a reduction is a number, 0 none, 1 mean, 2 sum, or its name ---

_REDUCTIONS = ("none", "mean", "sum")


def _reduction(name: str, reduction: int | str) -> str:
    if isinstance(reduction, str) and reduction in _REDUCTIONS:
        return reduction
    if reduction not in (0, 1, 2):
        raise ValueError(f"{name}: reduction must be 0 for none, 1 for mean or 2 for sum, got {reduction!r}")
    return _REDUCTIONS[int(reduction)]


@checked
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int | str = 1,
) -> Tensor:
    """Returns the cross entropy of sigmoid(input) with targets of the same shape, between 0 and 1."""
    how = _reduction("binary_cross_entropy_with_logits", reduction)
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=how, pos_weight=pos_weight)


@checked
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 1
) -> Tensor:
    """Returns 1 - cos where the target is 1, and max(0, cos - margin) where it is -1."""
    how = _reduction("cosine_embedding_loss", reduction)
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=how)


@checked
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int | str = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Returns what `nn.functional.ctc_loss` does."""
    how = _reduction("ctc_loss", reduction)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, how, zero_infinity)


@checked
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | str = 1) -> Tensor:
    """Returns x where the target is 1, and max(0, margin - x) where it is -1."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction("hinge_embedding_loss", reduction))


@checked
def kl_div(input: Tensor, target: Tensor, reduction: int | str = 1, *, log_target: bool = False) -> Tensor:
    """Returns the divergence (Kullback-Leibler) of log-probabilities from targets."""
    return _ops.kl_div(input, target, _reduction("kl_div", reduction), log_target)


@checked
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 1
) -> Tensor:
    """Returns max(0, -target * (input1 - input2) + margin)."""
    how = _reduction("margin_ranking_loss", reduction)
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=how)


@checked
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int | str
) -> Tensor:
    """Returns the negative log-likelihood of counts under Poisson distributions, given their (log) rates."""
    how = _reduction("poisson_nll_loss", reduction)
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=how)


@checked
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int | str = 1,
) -> Tensor:
    """Returns max(0, |anchor - positive| - |anchor - negative| + margin), with p-norms along the last dimension."""
    how = _reduction("triplet_margin_loss", reduction)
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=how)
