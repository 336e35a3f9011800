"""The memory behind tensors, under PyTorch's names."""

from plait._tensors.storage import Storage

__all__ = ["TypedStorage", "UntypedStorage"]

TypedStorage = UntypedStorage = Storage
