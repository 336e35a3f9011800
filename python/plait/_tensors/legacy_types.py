"""Types of tensors by dtype, as older programs name them: `FloatTensor(2, 3)`, `isinstance(x, LongTensor)`."""

from __future__ import annotations

from typing import Any

from plait import _ops
from plait._device import current_gpu
from plait._dtype import dtype as DType
from plait._engine.runtime import is_tensor
from plait._functions.conversion import OLD_NAMES
from plait._layout import Size
from plait._tensors.arrays import tensor


class _TensorType(type):
    dtype: DType
    place: str  # "cpu" or "gpu"

    def __instancecheck__(cls, value: object) -> bool:
        return is_tensor(value) and value.dtype is cls.dtype and (value.device._kind == "gpu") == (cls.place == "gpu")

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        """Returns a tensor with a copy of a sequence, or of the given sizes with undefined values."""
        where = device or (current_gpu() if cls.place == "gpu" else None)
        if len(data) == 1 and not isinstance(data[0], int | Size):
            return tensor(data[0], dtype=cls.dtype, device=where)
        return _ops.empty(*(data or (0,)), dtype=cls.dtype, device=where)


def _types(module: str, place: str) -> dict[str, _TensorType]:
    return {n: _TensorType(n, (), {"dtype": d, "place": place, "__module__": module}) for n, d in OLD_NAMES.items()}


TYPES, GPU_TYPES = _types("plait", "cpu"), _types("plait.cuda", "gpu")
