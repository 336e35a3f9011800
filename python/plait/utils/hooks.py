"""What hooks are removed by."""

from plait._hooks import RemovableHandle

__all__ = ["RemovableHandle"]
