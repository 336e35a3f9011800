"""What the functions share: operands, sizes, results written to a given tensor, NumPy's names of arguments."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

import numpy as np

from plait import _core, _ops
from plait._dtype import can_cast
from plait._engine.overriding import OVERRIDING, SeenFirstError, again, found_in, handle, looks, seen_first
from plait._engine.runtime import TensorBase, check, number, own
from plait._functions._checked import MISTAKES, explained, made, made_method
from plait._functions._fast import fast_named_call
from plait._layout import MemoryFormat, strided

if TYPE_CHECKING:
    from plait._tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


def operand(value: Any, name: str = "operand") -> Tensor:
    """Returns a tensor as it is, and a plain number as a tensor that promotes as a number does.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(value, TensorBase):
        return value  # type: ignore[return-value]
    try:
        kind, v = number(value)
    except TypeError:
        raise TypeError(f"{name}: want a tensor or a number, got {type(value).__name__} {value!r:.60}") from None
    except OverflowError as error:
        raise OverflowError(f"{name}: {error}") from None
    return (
        own(_core.bind_TensorNumber(kind, v, int(v) if kind != -1 else 0))
        if kind < 0
        else own(_core.bind_TensorAlias(kind))
    )


def typed(value: Any, like: Tensor) -> Tensor:
    """Returns a tensor as it is, and a number as a 0-d tensor of `like`'s dtype and device."""
    if isinstance(value, TensorBase):
        return value  # type: ignore[return-value]
    return _ops.full(fill_value=value, dtype=like.dtype, device=like.device)


def is_complex_factor(name: str, factor: Any, *tensors: Tensor) -> bool:
    """Reports whether a factor of a product is a complex number.

    Raises:
        TypeError: if it is, and none of the tensors is complex.
    """
    if not isinstance(factor, complex):
        return False
    if not any(t.dtype.is_complex for t in tensors):
        dtypes = " and ".join(sorted({repr(t.dtype) for t in tensors}))
        raise TypeError(f"{name}: want a real number for tensors of {dtypes}, got {factor}")
    return True


def want_tensor(name: str, value: Any) -> None:
    """Raises a TypeError unless `value` is a tensor."""
    if not isinstance(value, TensorBase):
        raise TypeError(f"{name}: want a tensor, got {type(value).__name__} {value!r:.60}")


def one_dim(name: str, dim: Any) -> int:
    """Returns the only dimension of an argument that must be one."""
    if isinstance(dim, Sequence) and len(dim) == 1:
        dim = dim[0]
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"{name}: dim must be one integer, got {type(dim).__name__} {dim!r:.60}")
    return dim.__index__()


def store(out: Any, result: Any) -> Any:
    """Returns `result`, or writes it to `out`, tensor for tensor, and returns that. On an error nothing is written.

    Raises:
        TypeError: if the dtype of `out` cannot hold that of the result.
        RuntimeError: if gradients are recorded and `out`, or an input, requires one.
    """
    if out is None:
        return result
    if not isinstance(result, tuple):
        if not _fits(out, result):
            _writable(out, result)
        return _written(out, result)
    if not isinstance(out, list | tuple) or len(out) != len(result):
        raise TypeError(f"out: want {len(result)} tensors, got {type(out).__name__} {out!r:.60}")
    for o, r in zip(out, result, strict=True):
        if not _fits(o, r):
            _writable(o, r)
    made = [_written(o, r) for o, r in zip(out, result, strict=True)]
    return type(result)(*made) if hasattr(result, "_fields") else tuple(made)


_core.set_store(store)


def _fits(out: Any, result: Tensor) -> bool:
    """Whether `out` is a tensor of the result's dtype and shape, and no gradients flow to either."""
    return isinstance(out, TensorBase) and _core.bind_OutFits(out._h, result._h) == 1


def _writable(out: Any, result: Tensor) -> None:
    """Raises the errors of `store`."""
    want_tensor("out", out)
    if not can_cast(result.dtype, out.dtype):
        raise TypeError(f"out: a result of {result.dtype} does not go into a tensor of {out.dtype}")
    if result.requires_grad:
        raise RuntimeError("out: an input requires a gradient, which is not recorded there: omit out, or use no_grad")
    if out.requires_grad and _core.bind_GradEnabled():
        raise RuntimeError("out: a tensor that requires a gradient cannot be written to in this way")


def _written(out: Tensor, result: Tensor) -> Tensor:
    """Writes a result to `out`, whose shape becomes the result's."""
    if _core.sizes(out) != _core.sizes(result):
        adopt(out, _ops.empty(*result.shape, dtype=out.dtype, device=out.device))
    return _ops.copy_(out, result)


def into(out: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns what a generated function does, or writes it to `out` as `store` does: without a copy where the operation
    can write there itself.
    """
    if out is None:
        return function(*args, **kwargs)
    result = _core.call_into(out, function.__name__, function, args, kwargs)
    return out if result is out else store(out, result)


def adopt(t: Tensor, source: Tensor) -> Tensor:
    """Makes a tensor share the memory, dtype and layout of another, in place, and returns it."""
    check(_core.bind_TensorAdopt(t._h, source._h))
    forget_layout(t)
    return t


def forget_layout(t: Tensor) -> None:
    """Drops what a tensor remembers of its layout, after a change."""
    with contextlib.suppress(AttributeError):
        del t._sizes


_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}


def _renamed(function: Callable[..., Any]) -> dict[str, str]:
    """Returns NumPy's names of the arguments that a function has under another name."""
    code = function.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: ours for name, ours in _NUMPY_NAMES.items() if ours in own and name not in own}


def numpy_names(function: F) -> F:
    """Lets a function also take axis, keepdims and NumPy's other names for dim, keepdim, input and other.

    It explains what is wrong with its arguments, too, as `checked` says.
    """
    names, fast = _renamed(function), getattr(function, "_fast", None)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if OVERRIDING and (found := found_in(args, kwargs)) is not None:
            return handle(wrapped, found, args, kwargs)
        if fast is not None and (result := fast(args, kwargs)) is not None:
            return result
        for k in kwargs:
            if k in names:
                kwargs = {names.get(k, k): v for k, v in kwargs.items()}
                break
        try:
            return function(*args, **kwargs)
        except SeenFirstError:
            return again(wrapped, args, kwargs)
        except MISTAKES as error:
            if seen_first((*args, *kwargs.values())):
                return again(wrapped, args, kwargs)
            if (told := explained(function, args, kwargs, error)) is None:
                raise
            raise told from error

    looks(wrapped)
    return made(wrapped, function.__name__, 2)  # type: ignore[return-value]


class WithOut(Protocol[P, R_co]):
    """A function that can be called with `out`, too."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *args: Any, out: Any, **kwargs: Any) -> R_co: ...


def with_out(function: Callable[P, R_co], name: str = "") -> WithOut[P, R_co]:
    """Lets a function also take `out`, a tensor, or several, for the result, and NumPy's names of arguments.

    Args:
        function: a generated one
        name: that the result is assigned to; the function's own by default
    """
    names = _renamed(function)
    fast = fast_named_call(function, function, None, {}, {}, out=True)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if OVERRIDING and (found := found_in(args, kwargs)) is not None:
            return handle(wrapped, found, args, kwargs)
        if fast is not None and (result := fast(args, kwargs)) is not None:
            return result
        given = kwargs
        try:
            if not kwargs:
                return function(*args)  # type: ignore[call-arg]
            kwargs = {names.get(k, k): v for k, v in kwargs.items()}
            out = kwargs.pop("out", None)
            return store(out, function(*args, **kwargs)) if several else into(out, function, *args, **kwargs)
        except SeenFirstError:
            return again(wrapped, args, given)

    looks(wrapped)
    wrapped._fast = fast  # type: ignore[attr-defined]
    signature = inspect.signature(function)
    several = str(signature.return_annotation).startswith("tuple")
    wrapped.__signature__ = _and_out(signature, several)  # type: ignore[attr-defined]
    return made(wrapped, name or function.__name__, 2)  # type: ignore[return-value]


def _and_out(signature: inspect.Signature, several: bool) -> inspect.Signature:
    kind = "Sequence[Tensor] | None" if several else "Tensor | None"
    more = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    return signature.replace(parameters=[*signature.parameters.values(), more])


def check_format(name: str, memory_format: Any) -> None:
    """Raises a TypeError unless `memory_format` is one, or None. New tensors lie row-major with any."""
    if memory_format is not None and not isinstance(memory_format, MemoryFormat):
        kind = type(memory_format).__name__
        raise TypeError(f"{name}: memory_format must be one of plait's, got {kind} {memory_format!r:.60}")


def check_layout(name: str, layout: Any) -> None:
    """Raises a NotImplementedError unless `layout` is `plait.strided`, the only one, or None."""
    if layout is not None and layout is not strided:
        raise NotImplementedError(f"{name}: layout must be plait.strided, got {layout!r:.60}")


def is_scalar(value: Any) -> bool:
    """Whether `value` is a plain number, a NumPy one included."""
    return isinstance(value, int | float | np.generic)


def in_place(function: Callable[..., Any], name: str) -> Any:
    """Returns the method that replaces a tensor's elements by those that a function returns for them."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # The derivative may need the elements that are about to be replaced.
        source = _ops.clone(self) if self.requires_grad and _core.bind_GradEnabled() else self
        return _ops.copy_(self, function(source, *args, **kwargs))

    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "out"]
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    method.__doc__ = f"Replaces the elements by what `{name[:-1]}` returns."
    return made_method(method, name)


def flat(first: Any, more: tuple[Any, ...]) -> Any:
    """Returns sizes or dimensions that are given one by one, or all in a sequence."""
    return (first, *more) if more else first
