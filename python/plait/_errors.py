"""Exceptions: Python's own, which also derive from RuntimeError where PyTorch raises that."""

from __future__ import annotations

from plait import _core


class ArgumentError(ValueError, RuntimeError):
    """An argument, or a value in a tensor, that an operation cannot take."""


class ShapeError(ValueError, RuntimeError):
    """Shapes that do not fit."""


class DTypeError(TypeError, RuntimeError):
    """A dtype that an operation cannot take."""


class DeviceError(RuntimeError):
    """A device that failed, or that does not fit."""


class DistributedError(RuntimeError):
    """A collective that failed: a rank that died or never came, or calls that do not match."""


class OutOfMemoryError(MemoryError, RuntimeError):
    """An allocation that a device could not serve."""


class IndexRangeError(IndexError, RuntimeError):
    """A dimension or an index out of range."""


class IndexKindError(TypeError, IndexError):
    """Something in square brackets that is no index."""


class LinAlgError(ArgumentError):
    """A matrix that a function of linear algebra cannot take, such as a singular one."""


class MissingFeatureError(NotImplementedError, AttributeError):
    """A name of PyTorch's that Plait does not have."""


# In the order of the numbers that the engine gives its kinds of errors.
EXCEPTIONS: tuple[type[Exception], ...] = (
    ArgumentError,
    ShapeError,
    DTypeError,
    TypeError,
    IndexRangeError,
    OutOfMemoryError,
    NotImplementedError,
    DeviceError,
    RuntimeError,
    OSError,
    DistributedError,
    LinAlgError,
)
MEMORY = EXCEPTIONS.index(OutOfMemoryError)


def error_from(status: int) -> Exception:
    """Returns the exception that a negative status names, and frees the status."""
    kind, message = _core.bind_ErrorKind(status), _core.bind_ErrorMessage(status)
    _core.bind_ErrorRelease(status)
    return EXCEPTIONS[kind](message)
