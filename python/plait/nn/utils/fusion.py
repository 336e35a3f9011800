"""Batch norms folded into the layers before them."""

from __future__ import annotations

import copy
from typing import Any

from plait import _ops
from plait._tensor import Tensor
from plait.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _scale(bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None) -> Tensor:
    scale = _ops.rsqrt(_ops.add(bn_rv, bn_eps))
    return scale if bn_w is None else _ops.mul(scale, bn_w)


def _fused(
    weight: Tensor, bias: Tensor | None, mean: Tensor, scale: Tensor, shift: Tensor | None, dim: int
) -> tuple[Parameter, Parameter]:
    shape = [1] * weight.ndim
    shape[dim] = -1
    w = _ops.mul(weight, _ops.reshape(scale, shape))
    b = _ops.mul(_ops.neg(mean) if bias is None else _ops.sub(bias, mean), scale)
    b = b if shift is None else _ops.add(b, shift)
    return Parameter(w.detach(), weight.requires_grad), Parameter(b.detach(), weight.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Returns weight and bias of the convolution that does what a convolution and a batch norm in evaluation do."""
    return _fused(conv_w, conv_b, bn_rm, _scale(bn_rv, bn_eps, bn_w), bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Returns weight and bias of the linear layer that does what one and a batch norm in evaluation do."""
    return _fused(linear_w, linear_b, bn_rm, _scale(bn_rv, bn_eps, bn_w), bn_b, 0)


def _fuse(name: str, layer: Any, bn: Any, transpose: bool) -> Any:
    if layer.training or bn.training:
        raise ValueError(f"{name}: both modules must be in evaluation; call eval()")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"{name}: the batch norm has no running statistics")
    made = copy.deepcopy(layer)
    made.weight, made.bias = fuse_conv_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return made


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Returns the convolution that does what `conv` and then `bn` do in evaluation."""
    return _fuse("fuse_conv_bn_eval", conv, bn, transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Returns the linear layer that does what `linear` and then `bn` do in evaluation."""
    if bn.num_features not in (linear.out_features, 1):
        raise ValueError(
            f"fuse_linear_bn_eval: {linear.out_features} features do not fit a batch norm of {bn.num_features}"
        )
    return _fuse("fuse_linear_bn_eval", linear, bn, False)
