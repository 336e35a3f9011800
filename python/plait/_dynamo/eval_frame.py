"""Modules that PyTorch's compiler made: there are none."""

from plait._dynamo import OptimizedModule  # type: ignore[attr-defined]

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """Returns False: there is no compiler."""
    return False
