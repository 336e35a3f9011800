"""Padding, resampling and rearranging images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._engine.runtime import sized
from plait._engine.warnings import warn
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "affine_grid",
    "channel_shuffle",
    "grid_sample",
    "interpolate",
    "native_channel_shuffle",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

pixel_shuffle, pixel_unshuffle, channel_shuffle = _ops.pixel_shuffle, _ops.pixel_unshuffle, _ops.channel_shuffle
native_channel_shuffle = _ops.channel_shuffle


@checked
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Returns the input with its last dimensions extended, or cut where negative.

    Args:
        input: the tensor
        pad: elements in front of and behind the last dimension, then the one before it, ...
        mode: constant, reflect, replicate or circular
        value: what constant puts there, 0 by default
    """
    if mode != "constant":
        if value:
            raise ValueError(f"pad: mode {mode!r} takes no value, got {value}")
        if len(pad) // 2 not in (input.ndim - 1, input.ndim - 2) or not 1 <= len(pad) // 2 <= 3:
            raise NotImplementedError(
                f"pad: mode {mode!r} wants sizes for all dimensions but batch and channels, "
                f"got {list(pad)} for shape {list(input.shape)}"
            )
    return _ops.pad(input, pad, mode, 0.0 if value is None else float(value))


def _scale_list(name: str, value: Any, nd: int) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if len(value) != nd:
        raise ValueError(f"interpolate: {name} must have an entry for each of {nd} spatial dimensions, got {value!r}")
    return list(sized(value))


@checked
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Returns [N, C, ...] with one to three spatial dimensions resampled to other sizes.

    Args:
        input: the tensor
        size: the spatial sizes of the result
        scale_factor: or how many times larger it is
        mode: nearest, nearest-exact, linear, bilinear, bicubic, trilinear, lanczos or area
        align_corners: whether the centres of the corner elements coincide, not their outer edges
        recompute_scale_factor: compute positions from the sizes even if scale_factor is given
        antialias: whether an element of a smaller image is made of all that are in its place, as Pillow does; for
            bilinear, bicubic and lanczos, which wants it
    """
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and input.ndim == 4):
        raise ValueError(
            f"interpolate: antialias wants mode bilinear, bicubic or lanczos and an input [N, C, H, W], "
            f"got {mode} and shape {list(input.shape)}"
        )
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(f"interpolate: mode {mode!r} takes no align_corners")
    if (size is None) == (scale_factor is None):
        raise ValueError(f"interpolate: give either size or scale_factor, got {size!r} and {scale_factor!r}")
    nd = input.ndim - 2
    size, scale_factor = _scale_list("size", size, nd), _scale_list("scale_factor", scale_factor, nd)
    return _ops.interpolate(
        input, size, scale_factor, mode, bool(align_corners), bool(recompute_scale_factor), bool(antialias)
    )


@checked
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Does what `interpolate` does."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@checked
def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Does what `interpolate` does with mode nearest."""
    return interpolate(input, size, scale_factor, "nearest")


@checked
def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Does what `interpolate` does with mode bilinear and align_corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def _corners(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warn(f"{name}: align_corners is not given and taken as False")
    return bool(align_corners)


@checked
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Returns the values of images or volumes at the places of a grid, [N, ..., 2 or 3], from -1 to 1.

    Args:
        input: [N, C, H, W] or [N, C, D, H, W]
        grid: places, x first
        mode: bilinear, nearest or bicubic
        padding_mode: what lies outside: zeros, border or reflection
        align_corners: whether -1 and 1 are the centres of the outermost elements, not their outer edges
    """
    return _ops.grid_sample(input, grid, mode, padding_mode, _corners("grid_sample", align_corners))


@checked
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Returns the places for `grid_sample` that affine maps, [N, 2, 3] or [N, 3, 4], take a result of `size` from."""
    return _ops.affine_grid(theta, size, _corners("affine_grid", align_corners))
