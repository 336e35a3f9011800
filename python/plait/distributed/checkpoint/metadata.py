"""What a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait._dtype import dtype
from plait._layout import Size


@dataclass
class TensorMetadata:
    """Describes a tensor of a checkpoint: its dtype, its whole shape, and why the files cannot hold it, if so."""

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
        """Both in one dict, as PyTorch has them."""
        return {**self.tensors, **self.values}
