"""Asks whether a tensor is one that PyTorch's compiler traces with."""

from plait._engine.missing_names import refusing as _refusing

__all__ = ["is_fake"]


def is_fake(x: object) -> bool:
    """Returns False: there are no such tensors."""
    return False


__getattr__ = _refusing(
    __name__,
    "FakeTensor FakeTensorConverter FakeTensorMode",
    'there is no tracing; the device "meta" has tensors without data',
)
