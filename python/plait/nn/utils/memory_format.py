"""Memory formats of the weights of convolutions."""

from __future__ import annotations

from typing import Any, TypeVar

from plait._functions._common import check_format

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

M = TypeVar("M")


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Returns the module as it is: weights lie row-major with any format, and kernels of convolutions read them so."""
    check_format("convert_conv2d_weight_memory_format", memory_format)
    return module


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Returns the module as it is: weights lie row-major with any format, and kernels of convolutions read them so."""
    check_format("convert_conv3d_weight_memory_format", memory_format)
    return module
