"""Exceptions: Python's own, which also derive from RuntimeError where PyTorch raises that."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator

from plait import _core
from plait._engine.rank import here


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


class DistStoreError(DistributedError):
    """An operation of a store that waited in vain, or that the store cannot do."""


class QueueEmptyError(DistStoreError):
    """A queue of a store that has no value."""


class DistNetworkError(DistributedError):
    """A connection that could not be made, or that broke."""


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


class CheckpointError(pickle.UnpicklingError, ValueError, RuntimeError):
    """A checkpoint that cannot be written or read or, for one of activations, computed again.

    One that follows from an exception such as FileNotFoundError is of that class too.
    """


_KEPT = (OSError, TypeError, MemoryError, NotImplementedError, AttributeError, IndexError, pickle.PicklingError)
_classes: dict[type[Exception], type[CheckpointError]] = {}


def _checkpoint_class(kind: type[Exception]) -> type[CheckpointError]:
    """Returns the class of a CheckpointError that follows from an exception of a class."""
    if issubclass(kind, CheckpointError):
        return kind
    if kind.__module__ in ("builtins", "pickle", "_pickle", __name__) and issubclass(
        kind, (*_KEPT, DeviceError, DistributedError)
    ):
        if kind not in _classes:
            made = type("CheckpointError", (CheckpointError, kind), {"__module__": __name__})
            _classes.setdefault(kind, made)  # another thread may have made it too
        return _classes[kind]
    return CheckpointError


def checkpoint_error(op: str, path: str, error: Exception) -> CheckpointError:
    """Returns an exception as a CheckpointError that names the operation and the file."""
    text = str(error) or type(error).__name__
    if str(path) not in text:
        text = f"{path}: {text}"
    made = _checkpoint_class(type(error))(text if text.startswith(f"{op}: ") else f"{op}: {text}")
    if isinstance(error, OSError) and isinstance(made, OSError):
        made.errno = error.errno
    return made


@contextlib.contextmanager
def checkpoint_errors(op: str, path: str) -> Iterator[None]:
    """Makes every exception inside a CheckpointError that names the operation and the file."""
    try:
        yield
    except Exception as error:
        raise checkpoint_error(op, path, error) from error


@contextlib.contextmanager
def damage(what: str) -> Iterator[None]:
    """Makes an exception inside a CheckpointError that calls a part of a file damaged.

    A lack of memory, and a disk or network that fails, say nothing about the file: they stay what they are.
    """
    try:
        yield
    except (CheckpointError, MemoryError, OSError):
        raise
    except Exception as error:
        raise CheckpointError(f"{what} is damaged: {type(error).__name__}: {error}") from None


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


def text_of(error: BaseException) -> str:
    """Returns what an error says, or its class where that is nothing, or where it cannot be printed."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__}, which cannot be printed"


def error_from(status: int) -> Exception:
    """Returns the exception that a negative status names, and frees the status."""
    kind, message = _core.bind_ErrorKind(status), _core.bind_ErrorMessage(status)
    _core.bind_ErrorRelease(status)
    if EXCEPTIONS[kind] is DistributedError:
        here().error_raised = True
    return EXCEPTIONS[kind](message)
