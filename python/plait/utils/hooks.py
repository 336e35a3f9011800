"""`RemovableHandle`, under PyTorch's module path."""

from plait._autograd.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
