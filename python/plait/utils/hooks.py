"""What hooks are removed by."""

from plait._autograd import RemovableHandle

__all__ = ["RemovableHandle"]
