"""`RemovableHandle`, at PyTorch's path."""

from plait._autograd.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
