"""Normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plait import _ops
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm"]

local_response_norm = _ops.local_response_norm


@checked
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Returns the input with its last dimensions, of shape `normalized_shape`, brought to mean 0 and variance 1."""
    return _ops.layer_norm(input, normalized_shape, weight, bias, eps)


@checked
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Returns the input divided by the root of the mean square of its last dimensions."""
    return _ops.rms_norm(input, normalized_shape, weight, eps=math.nan if eps is None else eps)


@checked
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Returns the input [N, C, ...] with groups of channels of each sample brought to mean 0 and variance 1."""
    return _ops.group_norm(input, num_groups, weight, bias, eps)


@checked
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Returns the input [N, C, ...] with channels brought to mean 0 and variance 1, the batch's or running ones."""
    if training and input.numel() and input.numel() == input.shape[1]:
        raise ValueError(
            f"batch_norm: training needs more than one value per channel, got input of shape {list(input.shape)}"
        )
    return _ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@checked
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Returns the input [N, C, ...] with each channel of each sample brought to mean 0 and variance 1."""
    if use_input_stats and input.numel() and input.ndim > 1 and input.shape[2:].numel() == 1:
        raise ValueError(
            f"instance_norm: training needs more than one value per channel, got input of shape {list(input.shape)}"
        )
    return _ops.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@checked
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """Returns the input divided by its p-norm along a dimension, or by eps where that is larger."""
    made = _ops.normalize(input, float(p), dim, eps)
    return made if out is None else _ops.copy_(out, made)
