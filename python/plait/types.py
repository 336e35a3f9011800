"""Names of types for annotations."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TypeAlias

from plait._device import device as _device
from plait._dtype import dtype as _dtype  # noqa: F401  # a name of the module
from plait._layout import Size
from plait._tensor import Tensor
from plait._tensors.storage import Storage
from plait.serialization import FileLike

__all__ = ["Device", "FileLike", "Number", "Storage"]

Device: TypeAlias = _device | str | int | None
Number: TypeAlias = builtins.int | builtins.float | builtins.bool
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_bool, _float, _int, _complex = builtins.bool, builtins.float, builtins.int, builtins.complex
