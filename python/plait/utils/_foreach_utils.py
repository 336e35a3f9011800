"""What optimisers written for PyTorch ask about operations on lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from plait._device import device as Device
from plait._engine.runtime import is_tensor

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._tensor import Tensor

__all__ = ["Indices", "TensorListList"]

Indices: TypeAlias = "list[int]"
TensorListList: TypeAlias = "list[list[Tensor | None]]"


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Returns the types of devices with operations on lists: all but that of no memory."""
    return ["cpu", "cuda", "gpu"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Returns the types of devices with optimisers of one launch: the same."""
    return _get_foreach_kernels_supported_devices()


def _device_has_foreach_support(device: Device) -> bool:
    """Whether a device has operations on lists."""
    return Device(device).type in _get_foreach_kernels_supported_devices()


def _has_foreach_support(tensors: Sequence[Tensor | None], device: Device) -> bool:
    """Whether a device has operations on lists, and a list has tensors, or None, alone."""
    return _device_has_foreach_support(device) and all(t is None or is_tensor(t) for t in tensors)


def _group_tensors_by_device_and_dtype(
    tensorlistlist: TensorListList, with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[TensorListList, Indices]]:
    """Returns lists whose tensors belong together, divided by the devices and dtypes of the first list's.

    Args:
        tensorlistlist: lists of the same length; others than the first may have None
        with_indices: whether to tell the places that the tensors had

    Returns:
        for each device and dtype the lists of its tensors, and their places or nothing
    """
    groups: dict[tuple[Device, DType], tuple[TensorListList, Indices]] = {}
    for i, first in enumerate(tensorlistlist[0]):
        if first is None:
            raise ValueError(f"_group_tensors_by_device_and_dtype: the first list has None at {i}")
        lists, places = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for to, of in zip(lists, tensorlistlist, strict=True):
            if of:  # an empty list stands for one that is not needed
                to.append(of[i])
        if with_indices:
            places.append(i)
    return dict(groups)
