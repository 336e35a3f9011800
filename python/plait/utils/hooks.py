"""What hooks are removed by."""

from plait._autograd.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
