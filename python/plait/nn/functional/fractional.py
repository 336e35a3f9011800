"""Fractional maximum pooling: windows of random distances (Graham, 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._dtype import int64
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]


def _starts(u: Tensor, size: int, kernel: int, out: int) -> Tensor:
    """Returns where `out` windows begin, [..., out], given a uniform number for each row of them."""
    last = _ops.full(*u.shape, 1, fill_value=size - kernel, dtype=int64, device=u.device)
    if out == 1:
        return last
    step = (size - kernel) / (out - 1)
    u = _ops.unsqueeze(u, -1)
    places = _ops.add(_ops.arange(0, end=out - 1, dtype=u.dtype, device=u.device), u)
    begin = _ops.sub(_ops.floor(_ops.mul(places, step)), _ops.floor(_ops.mul(u, step)))
    return _ops.cat([begin.to(int64), last], -1)


def _pool(
    nd: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, return_indices: bool, samples: Any
) -> Any:
    name = f"fractional_max_pool{nd}d"
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name}: give either output_size or output_ratio, got {output_size} and {output_ratio}")
    single = input.ndim == nd + 1
    x = _ops.unsqueeze(input, 0) if single else input
    if x.ndim != nd + 2:
        raise ValueError(f"{name}: want {nd + 1} or {nd + 2} dimensions, got shape {list(input.shape)}")
    sizes = list(x.shape[2:])
    kernel = list(kernel_size) if isinstance(kernel_size, Sequence) else [kernel_size] * nd
    if output_size is not None:
        out = list(output_size) if isinstance(output_size, Sequence) else [output_size] * nd
    else:
        ratios = list(output_ratio) if isinstance(output_ratio, Sequence) else [output_ratio] * nd
        if any(not 0 < r < 1 for r in ratios):
            raise ValueError(f"{name}: output_ratio must lie between 0 and 1, got {output_ratio}")
        out = [int(n * r) for n, r in zip(sizes, ratios, strict=True)]
    if any(o < 1 or o + k - 1 > n for o, k, n in zip(out, kernel, sizes, strict=True)):
        raise ValueError(f"{name}: windows of {kernel} give no output of {out} for shape {list(input.shape)}")
    if samples is None:
        samples = _ops.rand(*x.shape[:2], nd, dtype=x.dtype, device=x.device)
    elif single:
        samples = _ops.narrow(samples, 0, 0, 1)  # as PyTorch takes those of the first of a batch
    flat: Any = 0
    for d in range(nd):
        # The samples' last entry is the last dimension's, but of volumes the first is the first's.
        u = _ops.select(samples, 2, nd - 1 - d if nd == 2 else d)
        inside = _ops.arange(0, end=kernel[d], dtype=int64, device=x.device)
        places = _ops.add(_ops.unsqueeze(_starts(u, sizes[d], kernel[d], out[d]), -1), inside)
        shape = [*x.shape[:2], *([1] * (2 * nd))]
        shape[2 + d], shape[2 + nd + d] = out[d], kernel[d]
        flat = _ops.add(_ops.mul(flat, sizes[d]), _ops.reshape(places, shape)) if d else _ops.reshape(places, shape)
    windows = _ops.reshape(flat, (*x.shape[:2], *out, -1))
    values = _ops.gather(_ops.flatten(x, 2), 2, _ops.flatten(windows, 2))
    best, at = _ops.max(_ops.reshape(values, tuple(windows.shape)), -1)
    best = _ops.squeeze(best, 0) if single else best
    if not return_indices:
        return best
    where = _ops.squeeze(_ops.gather(windows, -1, _ops.unsqueeze(at, -1)), -1)
    return best, _ops.squeeze(where, 0) if single else where


@checked
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Returns the maxima of windows of [N, C, H, W] at random distances; with return_indices their positions too.

    Args:
        input: the tensor
        kernel_size: of the windows
        output_size: of the result
        output_ratio: or its share of the input's size
        return_indices: also return positions in the planes
        _random_samples: uniform numbers [N, C, 2] in place of drawn ones
    """
    return _pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@checked
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Returns the maxima of windows of [N, C, D, H, W] at random distances, as `fractional_max_pool2d` does."""
    return _pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@checked
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Returns maxima and their positions; see `fractional_max_pool2d`."""
    return _pool(2, input, kernel_size, output_size, output_ratio, True, _random_samples)


@checked
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Returns maxima and their positions; see `fractional_max_pool3d`."""
    return _pool(3, input, kernel_size, output_size, output_ratio, True, _random_samples)
