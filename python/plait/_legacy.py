"""Types of tensors by dtype, as older programs name them: `FloatTensor(2, 3)`, `isinstance(x, LongTensor)`."""

from __future__ import annotations

from typing import Any

from plait import _ops
from plait._arrays import tensor
from plait._dtype import dtype as DType
from plait._functions.conversion import OLD_NAMES
from plait._runtime import is_tensor


class _TensorType(type):
    dtype: DType

    def __instancecheck__(cls, value: object) -> bool:
        return is_tensor(value) and value.dtype is cls.dtype

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        """Returns a tensor with a copy of a sequence, or of the given sizes with undefined values."""
        if len(data) == 1 and not isinstance(data[0], int):
            return tensor(data[0], dtype=cls.dtype, device=device)
        return _ops.empty(*(data or (0,)), dtype=cls.dtype, device=device)


TYPES = {name: _TensorType(name, (), {"dtype": dtype, "__module__": "plait"}) for name, dtype in OLD_NAMES.items()}
