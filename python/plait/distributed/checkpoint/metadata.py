"""`Metadata`, the description of a checkpoint's contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait._dtype import dtype
from plait._layout import Size


@dataclass
class TensorMetadata:
    """A tensor of a checkpoint: its dtype, its full shape, and if its files are damaged, the problem."""

    dtype: dtype
    size: Size
    problem: str = ""


@dataclass
class Metadata:
    """The tensors of a checkpoint by name, and its values."""

    tensors: dict[str, TensorMetadata]
    values: dict[str, Any]

    @property
    def state_dict_metadata(self) -> dict[str, Any]:
        """Tensors and values in one dict, as in PyTorch."""
        return {**self.tensors, **self.values}
