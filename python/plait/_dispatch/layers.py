"""How functions of layers, losses and moments call operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from plait._dispatch import shapes
from plait._dispatch.kernels import REDUCTIONS
from plait._dispatch.operations import aten, packet
from plait.nn.functional._loss_reduction import legacy_reduction

# --- layers and losses ---


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None, *, log: bool = False) -> Any:
    if dim is None:
        dim = 0 if input.dim() in (0, 1, 3) else 1
    if dtype is not None:
        input = shapes.to(input, dtype)
    return (aten._log_softmax if log else aten._softmax).default(input, dim, False)


def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return softmax(input, dim, dtype=dtype, log=True)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return aten.native_layer_norm.default(input, list(normalized_shape), weight, bias, eps)[0]


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or not p:
        return input
    out = aten.native_dropout.default(input, p, True)[0]
    return aten.copy_.default(input, out) if inplace else out


def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    at = REDUCTIONS.index(legacy_reduction(size_average, reduce, reduction))
    return aten.nll_loss_forward.default(input, target, weight, at, ignore_index)[0]


def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.dim() > 2 or label_smoothing or target.dtype.is_floating_point:
        return packet("cross_entropy").default(
            input, target, weight, None, ignore_index, None, reduction, label_smoothing
        )
    logs = log_softmax(input, input.dim() - 1)
    return nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)


def loss(op: Any) -> Callable[..., Any]:
    def loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Any:
        return op.default(input, target, REDUCTIONS.index(legacy_reduction(size_average, reduce, reduction)))

    return loss


def l1_loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Any:
    out = aten.abs.default(aten.sub.Tensor(input, target))
    reduction = legacy_reduction(size_average, reduce, reduction)
    return out if reduction == "none" else (aten.mean if reduction == "mean" else aten.sum).default(out)


def embedding(
    input: Any, weight: Any, padding_idx: int | None = None, max_norm: Any = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    if max_norm is not None:
        raise NotImplementedError("embedding: max_norm is not there for tensors of a class with a __torch_dispatch__")
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return aten.embedding.default(weight, input, padding, scale_grad_by_freq, sparse)


def conv(n: int) -> Callable[..., Any]:
    def conv(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1,
    ) -> Any:  # fmt: skip
        stride, padding, dilation = ([v] * n if isinstance(v, int) else v for v in (stride, padding, dilation))
        if isinstance(padding, str):
            return packet(f"conv{n}d").padding(input, weight, bias, stride, padding, dilation, groups)
        return aten.convolution.default(
            input, weight, bias, list(stride), list(padding), list(dilation), False, [0] * n, groups
        )

    return conv


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    return aten.native_batch_norm.default(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def pair(value: Any) -> list[Any]:
    return [value, value] if isinstance(value, int) else list(value)


def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    out = aten.max_pool2d_with_indices.default(
        input, pair(kernel_size), [] if stride is None else pair(stride), pair(padding), pair(dilation), ceil_mode
    )
    return out if return_indices else out[0]


def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    strides = [] if stride is None else pair(stride)
    return aten.avg_pool2d.default(
        input, pair(kernel_size), strides, pair(padding), ceil_mode, count_include_pad, divisor_override
    )


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    size = [n if s is None else s for n, s in zip(input.shape[-2:], pair(output_size), strict=True)]
    if size == [1, 1]:
        return aten.mean.dim(input, [-1, -2], True)
    return aten._adaptive_avg_pool2d.default(input, size)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    n, c, *rest = input.shape
    return aten.native_group_norm.default(input, weight, bias, n, c, math.prod(rest), num_groups, eps)[0]


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Any:
    if out is not None:
        raise NotImplementedError("norm: out is not there for tensors of a class with a __torch_dispatch__")
    if isinstance(p, str):
        if p != "fro":
            return packet("norm").default(input, p, dim, keepdim, dtype=dtype)
        p = 2
    return aten.linalg_vector_norm.default(input, p, dim, keepdim, dtype=dtype)


def outer(input: Any, vec2: Any) -> Any:
    return aten.mul.Tensor(shapes.reshape(input, [input.shape[0], 1]), vec2)


def moment(op: Any) -> Callable[..., Any]:
    def moment(
        input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if correction is None and (unbiased is not None or dim is not None):
            correction = int(unbiased is not False)
        return op.correction(input, dim, correction=correction, keepdim=keepdim)

    return moment


def data(self: Any) -> Any:
    return aten.detach.default(self)
