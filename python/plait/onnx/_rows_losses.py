"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.onnx._build import Value
from plait.onnx._rows_elements import softplus
from plait.onnx._table import Node, broadcast, expanded, no, reduced, row, squeezed, unsqueezed


def _ended(x: Value, shape: list[Any], reduction: str) -> Value:
    """Returns a loss per element, its mean or its sum."""
    x.known(shape)
    if reduction == "none":
        return x
    return reduced("ReduceSum" if reduction == "sum" else "ReduceMean", x, list(range(len(shape))))


def _pair(n: Node, *values: Value) -> tuple[list[Value], list[Any]]:
    shape: list[Any] = []
    for v in values:
        shape = broadcast(shape, v.dims)
    return [expanded(v.to(n.dtype).known(v.shape), shape) for v in values], shape


@row("mse_loss l1_loss")
def _difference(n: Node, input: Value, target: Value, reduction: str) -> Value:
    (x, y), shape = _pair(n, input, target)
    apart = x - y
    return _ended(apart * apart if n.op == "mse_loss" else apart.make("Abs"), shape, reduction or "mean")


@row("smooth_l1_loss huber_loss")
def _huber(n: Node, input: Value, target: Value, reduction: str, **args: float) -> Value:
    (x, y), shape = _pair(n, input, target)
    (at,) = args.values()
    size = (x - y).make("Abs")
    if n.op == "smooth_l1_loss":
        loss = size if at == 0 else (size < at).where(size * size * (0.5 / at), size - 0.5 * at)
    else:
        loss = (size < at).where(size * size * 0.5, (size - 0.5 * at) * at)
    return _ended(loss, shape, reduction or "mean")


@row("binary_cross_entropy binary_cross_entropy_with_logits")
def _binary(
    n: Node, input: Value, target: Value, weight: Any, reduction: str, pos_weight: Any = None, **unused: Any
) -> Value:
    (x, y), shape = _pair(n, input, target)
    if n.op == "binary_cross_entropy":
        loss = -(y * x.make("Log").make("Max", -100) + (1 - y) * (1 - x).make("Log").make("Max", -100))
    elif pos_weight is None:
        loss = softplus(x) - x * y
    else:
        loss = (1 - y) * x + ((pos_weight.to(n.dtype) - 1) * y + 1) * softplus(-x)
    loss = loss if weight is None else loss * weight.to(n.dtype)
    return _ended(loss, shape, reduction or "mean")


@row("kl_div")
def _kl_div(n: Node, input: Value, target: Value, reduction: str, log_target: bool) -> Value:
    (x, y), shape = _pair(n, input, target)
    entropy = y.make("Exp") * y if log_target else y.equals(0).where(0.0, y * y.make("Log"))
    loss = entropy - (y.make("Exp") if log_target else y) * x
    if reduction == "batchmean":
        total = _ended(loss, shape, "sum")
        return total / n.b.scalar(shape[0]).to(n.dtype)
    return _ended(loss, shape, reduction or "mean")


@row("nll_loss cross_entropy")
def _classes(
    n: Node,
    input: Value,
    target: Value,
    weight: Any,
    ignore_index: Any,
    reduction: str,
    label_smoothing: float = 0.0,
    **unused: Any,
) -> Value:
    if label_smoothing or target.dtype not in ("int64", "uint8", "int32"):
        raise no("with label_smoothing or probabilities of classes")
    d = 0 if input.rank == 1 else 1
    x = input.make("LogSoftmax", axis=d) if n.op == "cross_entropy" else input
    ignored = target.equals(-100 if ignore_index is None else ignore_index)
    safe = ignored.where(0, target).to("int64").known(target.shape)
    picked = x.make("GatherElements", unsqueezed(safe, d), axis=d).known(
        [1 if i == d else s for i, s in enumerate(input.dims)]
    )
    kept = (~ignored).to(n.dtype)
    factor = kept if weight is None else weight.to(n.dtype).make("Gather", safe) * kept
    loss = (-squeezed(picked, d) * factor).known(target.shape)
    if reduction == "none":
        return loss
    everywhere = list(range(target.rank))
    total = reduced("ReduceSum", loss, everywhere)
    if reduction == "sum":
        return total
    return total / reduced("ReduceSum", factor.known(target.shape), everywhere)


@row("soft_margin_loss")
def _soft_margin(n: Node, input: Value, target: Value, reduction: str) -> Value:
    (x, y), shape = _pair(n, input, target)
    return _ended(softplus(-(x * y)), shape, reduction or "mean")


@row("margin_ranking_loss")
def _ranking(n: Node, input1: Value, input2: Value, target: Value, margin: float, reduction: str) -> Value:
    (a, b, y), shape = _pair(n, input1, input2, target)
    return _ended((-y * (a - b) + margin).make("Max", 0), shape, reduction or "mean")


@row("hinge_embedding_loss")
def _hinge(n: Node, input: Value, target: Value, margin: float, reduction: str) -> Value:
    (x, y), shape = _pair(n, input, target)
    return _ended(y.equals(1).where(x, (margin - x).make("Max", 0)), shape, reduction or "mean")


@row("gaussian_nll_loss")
def _gaussian(n: Node, input: Value, target: Value, var: Value, full: bool, eps: float, reduction: str) -> Value:
    if var.rank != input.rank:
        raise no("with a variance of fewer dimensions")
    (x, y, v), shape = _pair(n, input, target, var)
    v = v.make("Max", eps)
    loss = (v.make("Log") + (x - y) * (x - y) / v) * 0.5
    loss = loss + 0.5 * float(np.log(2 * np.pi)) if full else loss
    return _ended(loss, shape, reduction or "mean")
