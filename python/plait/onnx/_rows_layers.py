"""Convolutions, pools, norms, attention and recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from plait.onnx._build import Value
from plait.onnx._record import Dim
from plait.onnx._rows_products import _cast
from plait.onnx._table import (
    Node,
    expanded,
    joined,
    no,
    number,
    permuted,
    reduced,
    reshaped,
    row,
    sliced,
    unsqueezed,
)

# Convolutions.


@row("conv1d conv2d conv3d")
def _conv(
    n: Node, input: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, same: bool
) -> Value:
    rank = weight.rank - 2
    x, w = _cast(n, input, weight)
    single = x.rank == rank + 1
    x = unsqueezed(x, 0) if single else x
    options: dict[str, Any] = {
        "strides": _spread(stride, rank, 1),
        "dilations": _spread(dilation, rank, 1),
        "group": groups or 1,
        "kernel_shape": [w.size(i + 2) for i in range(rank)],
    }
    if same:
        total = [(k - 1) * d for k, d in zip(options["kernel_shape"], options["dilations"], strict=True)]
        options["pads"] = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        options["pads"] = _spread(padding, rank, 0) * 2
    inputs = [x, w, bias.to(n.dtype) if bias is not None else None]
    out = n.b.node("Conv", inputs, [n.dtype], **options)[0]
    return out.make("Squeeze", n.b.ints([0])) if single else out


def _spread(numbers: Any, rank: int, default: int) -> list[int]:
    numbers = numbers or [default]
    return list(numbers) if len(numbers) == rank else list(numbers) * rank


@row("conv_transpose1d conv_transpose2d conv_transpose3d")
def _conv_transpose(
    n: Node,
    input: Value,
    weight: Value,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Value:
    rank = weight.rank - 2
    x, w = _cast(n, input, weight)
    single = x.rank == rank + 1
    x = unsqueezed(x, 0) if single else x
    strides, more = _spread(stride, rank, 1), _spread(output_padding, rank, 0)
    if any(p >= s for p, s in zip(more, strides, strict=True)):
        raise no("with an output_padding that is not smaller than the stride")
    out = n.b.node(
        "ConvTranspose",
        [x, w, bias.to(n.dtype) if bias is not None else None],
        [n.dtype],
        strides=strides,
        dilations=_spread(dilation, rank, 1),
        pads=_spread(padding, rank, 0) * 2,
        output_padding=more,
        group=groups or 1,
        kernel_shape=[w.size(i + 2) for i in range(rank)],
    )[0]
    return out.make("Squeeze", n.b.ints([0])) if single else out


# Pools.


def _batched(n: Node, x: Value, rank: int) -> tuple[Value, bool]:
    single = x.rank == rank + 1
    return (unsqueezed(x, 0) if single else x), single


def _unbatched(n: Node, x: Value, single: bool) -> Value:
    return x.make("Squeeze", n.b.ints([0])) if single else x


@row("max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices")
def _max_pool(
    n: Node, input: Value, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    rank = int(n.op[8])
    x, single = _batched(n, input, rank)
    kernel = _spread(kernel_size, rank, 1)
    options = {
        "kernel_shape": kernel,
        "strides": _spread(stride, rank, 1) if stride else kernel,
        "pads": _spread(padding, rank, 0) * 2,
        "dilations": _spread(dilation, rank, 1),
        "ceil_mode": int(bool(ceil_mode)),
    }
    _whole_windows(n, x, rank, options)
    if not n.op.endswith("indices"):
        return _unbatched(n, n.b.node("MaxPool", [x], [n.dtype], **options)[0], single)
    values, indices = n.b.node("MaxPool", [x], [n.dtype, "int64"], **options)
    size = n.b.constant(1)  # ONNX counts over batch and channels too
    for d in range(2, 2 + rank):
        size = size * n.b.scalar(x.dims[d])
    return [_unbatched(n, values, single), _unbatched(n, indices.make("Mod", size), single)]


def _whole_windows(n: Node, x: Value, rank: int, options: dict[str, Any]) -> None:
    """Refuses what runtimes differ in: with ceil_mode, a last window that begins behind the input and its padding."""
    if not options.get("ceil_mode"):
        return
    for i in range(rank):
        size = x.size(i + 2)
        k, s, p = options["kernel_shape"][i], options["strides"][i], options["pads"][i]
        d = options.get("dilations", [1] * rank)[i]
        outs = -(-(size + 2 * p - d * (k - 1) - 1) // s) + 1
        if (outs - 1) * s >= size + p:
            raise no("with ceil_mode and a window that begins behind the input")


@row("avg_pool1d avg_pool2d avg_pool3d")
def _avg_pool(
    n: Node,
    input: Value,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    exclude_pad: bool,
    divisor_override: int,
) -> Value:
    rank = int(n.op[8])
    x, single = _batched(n, input, rank)
    kernel = _spread(kernel_size, rank, 1)
    pads = _spread(padding, rank, 0)
    options: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": _spread(stride, rank, 1) if stride else kernel,
        "pads": pads * 2,
        "count_include_pad": int(not exclude_pad or bool(divisor_override)),
        "ceil_mode": int(bool(ceil_mode)),
    }
    if ceil_mode:
        _whole_windows(n, x, rank, options)
        spans = [x.size(i + 2) + 2 * pads[i] - kernel[i] for i in range(rank)]
        if any(s % t for s, t in zip(spans, options["strides"], strict=True)) and (divisor_override or any(pads)):
            raise no("with ceil_mode, padding or a divisor, and windows that reach behind the input")
    out = n.b.node("AveragePool", [x], [n.dtype], **options)[0]
    if divisor_override:
        out = out * (math.prod(kernel) / divisor_override)
    return _unbatched(n, out, single)


@row("lp_pool1d lp_pool2d lp_pool3d")
def _lp_pool(n: Node, input: Value, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Value:
    rank = int(n.op[7])
    norm_type = number(norm_type)
    if ceil_mode or math.isinf(norm_type) or norm_type != int(norm_type):
        raise no("with ceil_mode or a broken norm")
    x, single = _batched(n, input, rank)
    kernel = _spread(kernel_size, rank, 1)
    strides = _spread(stride, rank, 1) if stride else kernel
    powers = n.b.node("AveragePool", [x ** int(norm_type)], [n.dtype], kernel_shape=kernel, strides=strides)[0]
    total = powers * float(math.prod(kernel))
    out = (total.make("Sign") * total.make("Abs").make("Max", 0)) ** (1 / norm_type)
    return _unbatched(n, out, single)


@row(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"
)
def _adaptive(n: Node, input: Value, output_size: list[Any]) -> Value:
    return _adaptive_pool(n, input, int(n.op[17]), n.op[9] == "a")


def _adaptive_pool(n: Node, input: Value, rank: int, average: bool) -> Value:
    spatial = list(range(input.rank - rank, input.rank))
    sizes = [n.shape[d] for d in spatial]
    if all(s == 1 for s in sizes):
        return reduced("ReduceMean" if average else "ReduceMax", input, spatial, True)
    ins = [input.size(d) for d in spatial]
    outs = [s if isinstance(s, int) else input.size(d) for s, d in zip(sizes, spatial, strict=True)]
    if all(i % o == 0 for i, o in zip(ins, outs, strict=True)):
        x, single = _batched(n, input, rank)
        kernel = [i // o for i, o in zip(ins, outs, strict=True)]
        pool = "AveragePool" if average else "MaxPool"
        return _unbatched(n, n.b.node(pool, [x], [n.dtype], kernel_shape=kernel, strides=kernel)[0], single)
    x = input
    for d, size, into in zip(spatial, ins, outs, strict=True):
        parts = []
        for i in range(into):
            start, end = i * size // into, -(-(i + 1) * size // into)
            part = sliced(x, d, start, end, 1, end - start)
            parts.append(reduced("ReduceMean" if average else "ReduceMax", part, [d], True))
        shape = [into if e == d else s for e, s in enumerate(x.dims)]
        x = joined(parts, d).known(shape)
    return x


# Norms.


def _per_channel(x: Value, w: Value | None, dtype: str) -> Value | None:
    """Returns a parameter per channel, broadcast over batch and space."""
    return None if w is None else reshaped(w.to(dtype).known(w.shape), [w.dims[0], *[1] * (x.rank - 2)])


def _affine(x: Value, weight: Value | None, bias: Value | None) -> Value:
    shape = x.shape
    x = x if weight is None else x * weight
    return (x if bias is None else x + bias).known(shape)


@row("batch_norm")
def _batch_norm(
    n: Node,
    input: Value,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Value:
    x = input
    if training:
        at = [d for d in range(x.rank) if d != 1]
        return _affine(_standard(x, at, eps), _per_channel(x, weight, n.dtype), _per_channel(x, bias, n.dtype))
    channels = running_mean.dims[0]
    ones, zeros = (n.b.constant(np.full(channels, v), n.dtype) for v in (1, 0))
    given = [ones if weight is None else weight, zeros if bias is None else bias, running_mean, running_var]
    return n.b.node("BatchNormalization", [x, *(g.to(n.dtype) for g in given)], [n.dtype], epsilon=eps)[0]


def _standard(x: Value, at: list[int], eps: float) -> Value:
    """Returns x less its mean over dimensions, divided by the standard deviation."""
    apart = (x - reduced("ReduceMean", x, at, True)).known(x.shape)
    variance = reduced("ReduceMean", (apart * apart).known(x.shape), at, True)
    return (apart / (variance + eps).make("Sqrt")).known(x.shape)


@row("instance_norm")
def _instance_norm(
    n: Node,
    input: Value,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> Value:
    if not use_input_stats:
        return _batch_norm(n, input, running_mean, running_var, weight, bias, False, momentum, eps)
    x = input
    out = _standard(x, list(range(2, x.rank)), eps)
    return _affine(out, _per_channel(x, weight, n.dtype), _per_channel(x, bias, n.dtype))


@row("layer_norm")
def _layer_norm(n: Node, input: Value, normalized_shape: list[int], weight: Any, bias: Any, eps: float) -> Value:
    axis = -len(normalized_shape)
    if any(isinstance(s, Dim) for s in normalized_shape) or n.dtype not in ("float32", "float64", "float16"):
        at = list(range(input.rank + axis, input.rank))
        return _affine(_standard(input, at, eps), weight and weight.to(n.dtype), bias and bias.to(n.dtype))
    scale = n.b.constant(np.ones(normalized_shape), n.dtype) if weight is None else weight.to(n.dtype)
    inputs = [input, scale, bias.to(n.dtype) if bias is not None else None]
    return n.b.node("LayerNormalization", inputs, [n.dtype], axis=axis, epsilon=eps)[0]


@row("rms_norm")
def _rms_norm(n: Node, input: Value, normalized_shape: list[int], weight: Any, eps: float) -> Value:
    at = list(range(input.rank - len(normalized_shape), input.rank))
    x = input.to("float32").known(input.shape) if input.dtype in ("float16", "bfloat16") else input
    eps = number(eps)
    if math.isnan(eps):
        eps = 2.0 ** (-52 if x.dtype == "float64" else -23)
    size = reduced("ReduceMean", (x * x).known(x.shape), at, True)
    out = (x / (size + eps).make("Sqrt")).to(n.dtype)
    return out if weight is None else out * weight.to(n.dtype)


@row("group_norm")
def _group_norm(n: Node, input: Value, num_groups: int, weight: Any, bias: Any, eps: float) -> Value:
    x = input
    channels = x.size(1)
    wide = [x.dims[0], num_groups, channels // num_groups, *x.dims[2:]]
    grouped = reshaped(x, wide)
    out = reshaped(_standard(grouped, list(range(2, len(wide))), eps), x.dims)
    return _affine(out, _per_channel(x, weight, n.dtype), _per_channel(x, bias, n.dtype))


@row("local_response_norm")
def _local_response_norm(n: Node, input: Value, size: int, alpha: float, beta: float, k: float) -> Value:
    if size > 64:
        raise no("over more than 64 channels")
    x = input
    channels = x.size(1)
    pads = [0] * (2 * x.rank)
    pads[1], pads[x.rank + 1] = size // 2, (size - 1) // 2
    wide = (
        (x * x)
        .make("Pad", n.b.ints(pads), n.b.constant(0, n.dtype))
        .known([x.dims[0], channels + size - 1, *x.dims[2:]])
    )
    total = sliced(wide, 1, 0, channels, 1, channels)
    for i in range(1, size):
        total = total + sliced(wide, 1, i, i + channels, 1, channels)
    return x / (total * (alpha / size) + k) ** beta


# Attention.


@row("scaled_dot_product_attention")
def _attention(
    n: Node,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
) -> Value:
    if dropout_p:
        raise no("with dropout")
    q, k, v = _cast(n, query, key, value)
    if enable_gqa and q.dims[-3] != k.dims[-3]:
        times = q.size(-3) // k.size(-3)
        k, v = (_repeated(x, times) for x in (k, v))
    width = q.dims[-1]
    by = number(scale)
    if not by and scale is not None and number(scale) == 0.0:
        by = None
    if by is None:
        q = q / n.b.scalar(width).to(n.dtype).make("Sqrt") if isinstance(width, Dim) else q * (1 / math.sqrt(width))
    else:
        q = q * by
    turned = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    scores = q.make("MatMul", permuted(k, turned))
    if is_causal:
        shape = [query.dims[-2], key.dims[-2]]
        seen = expanded(n.b.constant(1.0, "float32"), shape).make("Trilu", n.b.scalar(0), upper=0).to("bool")
        scores = seen.where(scores, -math.inf)
    hidden = None
    if attn_mask is not None:
        seen = attn_mask.dtype == "bool"
        scores = attn_mask.where(scores, -math.inf) if seen else scores + attn_mask.to(n.dtype)
        hidden = True
    weights = scores.make("Softmax", axis=-1)
    if hidden:  # a query that sees nothing attends to nothing
        weights = weights.make("IsNaN", dtype="bool").where(0.0, weights)
    return weights.make("MatMul", v)


def _repeated(x: Value, times: int) -> Value:
    shape = list(x.dims)
    wide = expanded(unsqueezed(x, x.rank - 2), [*shape[:-2], times, *shape[-2:]])
    return reshaped(wide, [*shape[:-3], x.size(-3) * times, *shape[-2:]])


# Recurrent layers.


@row("lstm_layer gru_layer")
def _recurrent(
    n: Node, input: Value, h0: Any, w_ih: Value, w_hh: Value, b_ih: Any, b_hh: Any, reverse: bool, c0: Any = None
) -> Any:
    gates = [0, 3, 1, 2] if n.op == "lstm_layer" else [1, 0, 2]  # the order in ONNX
    hidden = w_hh.size(1)
    order = n.b.constant(np.concatenate([np.arange(g * hidden, (g + 1) * hidden) for g in gates]))

    def sorted_(w: Value) -> Value:
        return w.to(n.dtype).make("Gather", order, axis=0).known(w.shape)

    x = input
    biases = None
    if b_ih is not None or b_hh is not None:
        zeros = n.b.constant(np.zeros(len(gates) * hidden), n.dtype)
        both = [zeros if b is None else sorted_(b) for b in (b_ih, b_hh)]
        biases = unsqueezed(joined(both, 0).known([2 * len(gates) * hidden]), 0)
    states = [None if s is None else unsqueezed(s.to(n.dtype).known(s.shape), 0) for s in (h0, c0)]
    inputs = [x, unsqueezed(sorted_(w_ih), 0), unsqueezed(sorted_(w_hh), 0), biases, None, states[0]]
    options: dict[str, Any] = {"hidden_size": hidden, "direction": "reverse" if reverse else "forward"}
    if n.op == "gru_layer":
        outs = n.b.node("GRU", inputs, [n.dtype] * 2, linear_before_reset=1, **options)
    else:
        outs = n.b.node("LSTM", [*inputs, states[1]], [n.dtype] * 3, **options)
    drop = [1, 0, 0]  # the dimension of directions
    return [o.make("Squeeze", n.b.ints([d])) for o, d in zip(outs, drop, strict=False)]
