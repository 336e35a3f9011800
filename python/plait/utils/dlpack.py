"""DLPack: tensors to and from other libraries without a copy."""

from plait._dlpack import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
