"""A mode for functions that are compiled and index by tensors."""

from contextlib import nullcontext as TransformGetItemToIndex

__all__ = ["TransformGetItemToIndex"]
