"""DLPack: exchanges tensors with other libraries without a copy."""

from plait._tensors.dlpack import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
