"""New tensors: filled, counted, drawn, and like others.

What functions that make tensors have in common, such as requires_grad, `_makes` adds to them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plait import _dtype as dt
from plait import _ops
from plait._functions._common import is_scalar, store
from plait._layout import Size
from plait._runtime import is_tensor

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType
    from plait._random import Generator
    from plait._tensor import Number, Tensor

__all__ = [
    "arange",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "eye",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "normal",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "range",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "vander",
    "zeros",
    "zeros_like",
]


def _sizes(name: str, size: Any, given: Any) -> Any:
    if given is not None:
        if size:
            raise TypeError(f"{name}: got sizes {size} and size={given}")
        return given
    if len(size) == 1 and not isinstance(size[0], int) and hasattr(size[0], "__iter__"):
        return size[0]
    return size


# Options that every function takes; those with None or False have no effect.
_OPTIONS = {"layout": None, "requires_grad": False, "pin_memory": False, "memory_format": None}


def _makes(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Lets a function that makes a tensor also take requires_grad, and layout, pin_memory and memory_format, which have
    no effect.
    """
    return _with_options(function, _OPTIONS)


def _makes_out(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Lets a function also take what `_makes` says, and out: a tensor for the result, which says its dtype."""
    return _with_options(function, {"out": None, "names": None, **_OPTIONS})


def _with_options(function: Callable[..., Tensor], options: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        if kwargs.keys().isdisjoint(options):
            return function(*args, **kwargs)
        given = {name: kwargs.pop(name, default) for name, default in options.items()}
        out = given.get("out")
        if out is not None and kwargs.get("dtype") is None:
            kwargs["dtype"] = out.dtype
        made = function(*args, **kwargs)
        if given["requires_grad"]:
            made.requires_grad = True
        return store(out, made)

    signature = inspect.signature(function)
    more = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in options.items()]
    make.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
    return make


def _filled(name: str) -> Any:
    make = getattr(_ops, name)

    def function(*sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
        return make(_sizes(name, sizes, size), dtype=dtype, device=device)

    function.__name__ = function.__qualname__ = name
    return _makes_out(function)


zeros = _filled("zeros")
zeros.__doc__ = """Returns zeros of the given sizes, of the default dtype: `zeros(2, 3)` or `zeros((2, 3))`.

    Args:
        sizes: integers, or a sequence of them
        size: the same as a keyword
        dtype: of the result
        device: where the result goes
        out: where the result goes
        names: not there
        layout: has no effect
        requires_grad: whether the result collects its gradient
        pin_memory: has no effect
        memory_format: has no effect
    """
ones = _filled("ones")
ones.__doc__ = "Returns ones of the given sizes; arguments are those of `zeros`."
empty = _filled("empty")
empty.__doc__ = "Returns a tensor of the given sizes with undefined values; arguments are those of `zeros`."


def _drawn(name: str) -> Any:
    make = getattr(_ops, name)

    def function(
        *sizes: Any,
        size: Any = None,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: DeviceLike | None = None,
    ) -> Tensor:
        return make(_sizes(name, sizes, size), dtype=dtype, device=device, generator=generator)

    function.__name__ = function.__qualname__ = name
    return _makes_out(function)


rand = _drawn("rand")
rand.__doc__ = "Returns random numbers in [0, 1); arguments are those of `zeros`, and a generator."
randn = _drawn("randn")
randn.__doc__ = "Returns random numbers of mean 0 and variance 1; arguments are those of `zeros`, and a generator."


@_makes
def empty_strided(size: Any, stride: Any, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns a tensor with the given sizes and strides and undefined values."""
    if len(size) != len(stride):
        raise ValueError(
            f"empty_strided: got {len(size)} sizes {tuple(size)} and {len(stride)} strides {tuple(stride)}"
        )
    n = 0 if 0 in size else 1 + sum((k - 1) * s for k, s in zip(size, stride, strict=True))
    return _ops.as_strided(_ops.empty(n, dtype=dtype, device=device), size, stride)


def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Returns a tensor with undefined values whose dimensions lie in memory in the given order, outermost first."""
    made = empty([size[d] for d in physical_layout], **options)
    inverse = [list(physical_layout).index(d) for d in range(len(size))]
    return _ops.permute(made, inverse)


def _value(v: Any) -> Any:
    return v.item() if is_tensor(v) else v


@_makes_out
def full(
    size: Any, fill_value: Number | Tensor, *, dtype: DType | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Returns a tensor of the given sizes with one value, which also says its dtype: bool, int64 or the default."""
    return _ops.full(size, fill_value=_value(fill_value), dtype=dtype or _of_value(fill_value), device=device)


def _of_value(value: Any) -> DType:
    if is_tensor(value):
        return value.dtype
    if isinstance(value, bool):
        return dt.bool_
    whole = isinstance(value, int) or getattr(getattr(value, "dtype", None), "kind", "f") in "iu"
    return dt.int64 if whole else dt.get_default_dtype()


@_makes
def scalar_tensor(s: Number, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns a 0-d tensor of the default dtype."""
    return full((), s, dtype=dtype or dt.get_default_dtype(), device=device)


@_makes_out
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Returns start, start + step, ... before end: `arange(end)`, `arange(start, end)`, `arange(start, end, step)`.

    Its dtype is int64 if all arguments are integers, else the default.
    """
    if start is None and end is None:
        raise TypeError("arange: want an end, got nothing")
    if end is None or start is None:
        start, end = 0, start if end is None else end
    return _ops.arange(_value(start), end=_value(end), step=_value(step), dtype=dtype, device=device)


def range(start: Any = 0, end: Any = None, step: Any = 1, **options: Any) -> Tensor:
    """Returns start, start + step, ... up to and with end; `arange` is what Python's range does."""
    if end is None:
        start, end = 0, start
    options.setdefault("dtype", dt.get_default_dtype())
    return arange(start, end + step / 2, step, **options)


@_makes_out
def linspace(
    start: Any, end: Any, steps: int, *, dtype: DType | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Returns `steps` numbers from start to end, evenly apart."""
    return _ops.linspace(_value(start), _value(end), steps, dtype=dtype, device=device)


@_makes_out
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Returns `steps` powers of `base`, with exponents evenly apart from start to end."""
    return _ops.logspace(_value(start), _value(end), steps, base, dtype=dtype, device=device)


@_makes_out
def eye(n: int, m: int | None = None, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns a matrix of n rows and m columns with ones on the diagonal and zeros elsewhere."""
    if m is not None and m < 0:
        raise ValueError(f"eye: the number of columns must not be negative, got {m}")
    return _ops.eye(n, -1 if m is None else m, dtype=dtype, device=device)


@_makes_out
def randint(
    low: Any,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Returns random integers from low to before high: `randint(high, size)` or `randint(low, high, size)`."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None or is_scalar(size):
        raise TypeError(f"randint: size must be a sequence of integers, got {size!r}")
    return _ops.randint(_value(low), high=_value(high), size=size, dtype=dtype, device=device, generator=generator)


@_makes_out
def randperm(
    n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Returns the integers from 0 to n - 1 in random order."""
    return _ops.randperm(n, dtype=dtype, device=device, generator=generator)


@_makes_out
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Returns normally distributed numbers: with a mean and deviation for each element, or `size` with the same."""
    if size is not None:
        return _ops.normal_(_ops.empty(size, dtype=dtype, device=device), mean, std, generator=generator)
    like = mean if is_tensor(mean) else std
    if not is_tensor(like):
        raise TypeError("normal: want size, or a tensor for mean or std")
    shape = _ops.add(like, 0 if like is not mean else std).shape
    noise = _ops.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
    return _ops.add(_ops.mul(noise, std), mean)


def _like(name: str, draws: bool = False) -> Any:
    make = getattr(_ops, name)

    def function(input: Tensor, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
        return make(input, dtype=dtype, device=device)

    def drawn(
        input: Tensor,
        *,
        dtype: DType | None = None,
        device: DeviceLike | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        return make(input, dtype=dtype, device=device, generator=generator)

    chosen = drawn if draws else function
    chosen.__name__ = chosen.__qualname__ = name
    chosen.__doc__ = (
        f"Returns what `{name[:-5]}` does, with the shape, dtype and device of a tensor unless others are given."
    )
    return _makes(chosen)


zeros_like, ones_like, empty_like = _like("zeros_like"), _like("ones_like"), _like("empty_like")
rand_like, randn_like = _like("rand_like", draws=True), _like("randn_like", draws=True)


@_makes
def full_like(
    input: Tensor, fill_value: Any, *, dtype: DType | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Returns one value with the shape, dtype and device of a tensor."""
    return _ops.full_like(input, _value(fill_value), dtype=dtype, device=device)


@_makes
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Returns random integers from low to before high with the shape of a tensor; with one bound, from 0."""
    if high is None:
        low, high = 0, low
    return _ops.randint_like(input, low, high=high, dtype=dtype, device=device, generator=generator)


def _triangle(name: str, where: str) -> Any:
    make = getattr(_ops, name)

    def function(
        row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: DeviceLike | None = None
    ) -> Tensor:
        return make(row, col, offset, dtype=dtype, device=device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns the coordinates of the elements on and {where} a diagonal, in two rows."
    return _makes(function)


tril_indices, triu_indices = _triangle("tril_indices", "below"), _triangle("triu_indices", "above")


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Returns the matrix of powers of the elements of a vector."""
    return _ops.vander(x, -1 if N is None else N, increasing)


# --- methods: like self, of other sizes ---


def _new(name: str) -> Any:
    make = getattr(_ops, name)

    def method(
        self: Tensor, *sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike | None = None
    ) -> Tensor:
        where = self.device if device is None else device
        return make(_sizes(name, sizes, size), dtype=dtype or self.dtype, device=where)

    method.__name__ = method.__qualname__ = f"new_{name}"
    method.__doc__ = f"Returns what `{name}` does, of the tensor's dtype and on its device unless others are given."
    return _makes(method)


new_zeros, new_ones, new_empty = _new("zeros"), _new("ones"), _new("empty")


@_makes
def new_full(
    self: Tensor, size: Any, fill_value: Any, *, dtype: DType | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Returns one value, of the tensor's dtype and on its device unless others are given."""
    return full(size, fill_value, dtype=dtype or self.dtype, device=self.device if device is None else device)


@_makes
def new_tensor(self: Tensor, data: Any, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns a tensor with a copy of data, of this one's dtype and on its device unless others are given."""
    from plait._arrays import tensor

    return tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device)


def new(self: Tensor, *data: Any, device: DeviceLike | None = None) -> Tensor:
    """Returns a tensor of this one's dtype and on its device, with a copy of data, or of the given sizes with undefined
    values.
    """
    if len(data) == 1 and not isinstance(data[0], int | Size):
        return new_tensor(self, data[0], device=device)
    return _ops.empty(*(data or (0,)), dtype=self.dtype, device=self.device if device is None else device)


def new_empty_strided(
    self: Tensor, size: Any, stride: Any, dtype: DType | None = None, device: DeviceLike | None = None, **options: Any
) -> Tensor:
    """Returns what `empty_strided` does, of the tensor's dtype and on its device unless others are given."""
    return empty_strided(
        size, stride, dtype=dtype or self.dtype, device=self.device if device is None else device, **options
    )
