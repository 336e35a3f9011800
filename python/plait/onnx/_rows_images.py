"""Images: sampling, and patches."""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.onnx._build import Value
from plait.onnx._rows_layers import _adaptive_pool, _spread, _unbatched
from plait.onnx._rows_products import _cast
from plait.onnx._table import (
    Node,
    expanded,
    no,
    number,
    permuted,
    reshaped,
    row,
    unsqueezed,
)


@row("interpolate")
def _interpolate(
    n: Node,
    input: Value,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: Any,
    recompute_scale_factor: Any,
    antialias: bool,
) -> Value:
    rank = input.rank - 2
    mode = mode or "nearest"
    if mode == "area":
        return _adaptive_pool(n, input, rank, True)
    if antialias or mode == "lanczos":
        raise no("with antialias")
    kind = {"nearest": "nearest", "nearest-exact": "nearest", "bicubic": "cubic"}.get(mode, "linear")
    if align_corners and kind != "nearest":
        how = "align_corners"
    else:
        how = "asymmetric" if mode == "nearest" else "half_pixel"
    options: dict[str, Any] = {
        "mode": kind,
        "coordinate_transformation_mode": how,
        "nearest_mode": ("floor" if mode == "nearest" else "round_prefer_ceil") if kind == "nearest" else None,
        "cubic_coeff_a": -0.75 if kind == "cubic" else None,
    }
    if scale_factor and not recompute_scale_factor and not size:
        factors = [
            1.0,
            1.0,
            *[float(number(s)) for s in (scale_factor if len(scale_factor) == rank else list(scale_factor) * rank)],
        ]
        scales = n.b.constant(np.asarray(factors), "float32")
        return n.b.node("Resize", [input, None, scales], [n.dtype], **options)[0]
    sizes = n.b.ints(n.shape)
    return n.b.node("Resize", [input, None, None, sizes], [n.dtype], **options)[0]


@row("im2col")
def _im2col(n: Node, input: Value, kernel_size: list[int], dilation: Any, padding: Any, stride: Any) -> Value:
    x = unsqueezed(input, 0) if input.rank == 3 else input
    kernel = _spread(kernel_size, 2, 1)
    steps, gaps, pads = _spread(stride, 2, 1), _spread(dilation, 2, 1), _spread(padding, 2, 0)
    sizes = [x.size(2) + 2 * pads[0], x.size(3) + 2 * pads[1]]
    if any(pads):
        x = x.make("Pad", n.b.ints([0, 0, *pads, 0, 0, *pads]), n.b.constant(0, n.dtype)).known([*x.dims[:2], *sizes])
    for at, i in ((2, 0), (4, 1)):
        outs = (sizes[i] - gaps[i] * (kernel[i] - 1) - 1) // steps[i] + 1
        index = np.arange(kernel[i])[:, None] * gaps[i] + np.arange(outs)[None] * steps[i]
        x = x.make("Gather", n.b.constant(index), axis=at).known([*x.dims[:at], *index.shape, *x.dims[at + 1 :]])
    return reshaped(permuted(x, [0, 1, 2, 4, 3, 5]), n.shape)


@row("col2im")
def _col2im(
    n: Node, input: Value, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    x = unsqueezed(input, 0) if input.rank == 2 else input
    sizes = n.b.ints(_spread(output_size, 2, 1)), n.b.ints(_spread(kernel_size, 2, 1))
    out = x.make(
        "Col2Im", *sizes, dilations=_spread(dilation, 2, 1), pads=_spread(padding, 2, 0) * 2,
        strides=_spread(stride, 2, 1),
    )  # fmt: skip
    return _unbatched(n, out, input.rank == 2)


@row("cross linalg_cross")
def _cross(n: Node, input: Value, other: Value, dim: int) -> Value:
    (a, b), shape = _cast(n, input, other), n.shape
    a, b = expanded(a, shape), expanded(b, shape)
    d = dim % len(shape)
    ahead, behind = n.b.constant(np.asarray([1, 2, 0])), n.b.constant(np.asarray([2, 0, 1]))
    turn = [v.make("Gather", i, axis=d) for v, i in ((a, ahead), (b, behind), (a, behind), (b, ahead))]
    return turn[0] * turn[1] - turn[2] * turn[3]


@row("grid_sample")
def _grid_sample(n: Node, input: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool) -> Value:
    kind = mode or "bilinear"
    if n.b.opset >= 20:
        kind = {"bilinear": "linear", "bicubic": "cubic"}.get(kind, kind)
    if input.rank != 4 and n.b.opset < 20:
        raise no("with 5 dimensions before opset 20")
    return n.b.node(
        "GridSample", [input, grid.to(n.dtype)], [n.dtype],
        mode=kind, padding_mode=padding_mode or "zeros", align_corners=int(bool(align_corners)),
    )[0]  # fmt: skip
