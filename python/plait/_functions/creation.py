"""New tensors: filled, counted, drawn, and like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _dtype as dt
from plait import _ops
from plait._functions._common import is_scalar, store
from plait._runtime import TensorBase

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


def _finish(out: Any, made: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        made.requires_grad = True
    return store(out, made)


def _filled(name: str) -> Any:
    make = getattr(_ops, name)

    def function(
        *sizes: Any,
        size: Any = None,
        names: None = None,
        out: Tensor | None = None,
        dtype: DType | None = None,
        layout: Any = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        shape = _sizes(name, sizes, size)
        if out is not None and dtype is None:
            dtype = out.dtype
        return _finish(out, make(shape, dtype=dtype, device=device), requires_grad)

    function.__name__ = function.__qualname__ = name
    return function


zeros = _filled("zeros")
zeros.__doc__ = """Returns zeros of the given sizes, of the default dtype: `zeros(2, 3)` or `zeros((2, 3))`.

    Args:
        sizes: integers, or a sequence of them
        size: the same as a keyword
        names: not there
        out: where the result goes
        dtype: of the result
        layout: has no effect
        device: where the result goes
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
        names: None = None,
        out: Tensor | None = None,
        dtype: DType | None = None,
        layout: Any = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
    ) -> Tensor:
        return _finish(
            out, make(_sizes(name, sizes, size), dtype=dtype, device=device, generator=generator), requires_grad
        )

    function.__name__ = function.__qualname__ = name
    return function


rand = _drawn("rand")
rand.__doc__ = "Returns random numbers in [0, 1); arguments are those of `zeros`, and a generator."
randn = _drawn("randn")
randn.__doc__ = "Returns random numbers of mean 0 and variance 1; arguments are those of `zeros`, and a generator."


def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a tensor with the given sizes and strides and undefined values."""
    if len(size) != len(stride):
        raise ValueError(
            f"empty_strided: got {len(size)} sizes {tuple(size)} and {len(stride)} strides {tuple(stride)}"
        )
    n = 0 if 0 in size else 1 + sum((k - 1) * s for k, s in zip(size, stride, strict=True))
    made = _ops.as_strided(_ops.empty(n, dtype=dtype, device=device), size, stride)
    return _finish(None, made, requires_grad)


def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Returns a tensor with undefined values whose dimensions lie in memory in the given order, outermost first."""
    made = empty([size[d] for d in physical_layout], **options)
    inverse = [list(physical_layout).index(d) for d in range(len(size))]
    return _ops.permute(made, inverse)


def full(
    size: Any,
    fill_value: Number | Tensor,
    *,
    out: Tensor | None = None,
    names: None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a tensor of the given sizes with one value, which also says its dtype: bool, int64 or the default."""
    value: Any = fill_value.item() if isinstance(fill_value, TensorBase) else fill_value  # type: ignore[attr-defined]
    if dtype is None:
        dtype = _of_value(fill_value)
    return _finish(out, _ops.full(size, fill_value=value, dtype=dtype, device=device), requires_grad)


def _of_value(value: Any) -> DType:
    if isinstance(value, TensorBase):
        return value.dtype  # type: ignore[attr-defined,no-any-return]
    if isinstance(value, bool):
        return dt.bool_
    return (
        dt.int64
        if isinstance(value, int) or getattr(getattr(value, "dtype", None), "kind", "f") in "iu"
        else dt.get_default_dtype()
    )


def scalar_tensor(
    s: Number,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a 0-d tensor of the default dtype."""
    return full((), s, dtype=dtype or dt.get_default_dtype(), device=device, requires_grad=requires_grad)


def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns start, start + step, ... before end: `arange(end)`, `arange(start, end)`, `arange(start, end, step)`.

    Its dtype is int64 if all arguments are integers, else the default.
    """
    if start is None and end is None:
        raise TypeError("arange: want an end, got nothing")
    if end is None or start is None:
        start, end = 0, start if end is None else end
    start, end, step = (v.item() if isinstance(v, TensorBase) else v for v in (start, end, step))  # type: ignore[attr-defined]
    return _finish(out, _ops.arange(start, end=end, step=step, dtype=dtype, device=device), requires_grad)


def range(start: Any = 0, end: Any = None, step: Any = 1, **options: Any) -> Tensor:
    """Returns start, start + step, ... up to and with end; `arange` is what Python's range does."""
    if end is None:
        start, end = 0, start
    options.setdefault("dtype", dt.get_default_dtype())
    return arange(start, end + step / 2, step, **options)


def _value(v: Any) -> Any:
    return v.item() if isinstance(v, TensorBase) else v  # type: ignore[attr-defined]


def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns `steps` numbers from start to end, evenly apart."""
    return _finish(out, _ops.linspace(_value(start), _value(end), steps, dtype=dtype, device=device), requires_grad)


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns `steps` powers of `base`, with exponents evenly apart from start to end."""
    return _finish(
        out, _ops.logspace(_value(start), _value(end), steps, base, dtype=dtype, device=device), requires_grad
    )


def eye(
    n: int,
    m: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a matrix of n rows and m columns with ones on the diagonal and zeros elsewhere."""
    if m is not None and m < 0:
        raise ValueError(f"eye: the number of columns must not be negative, got {m}")
    return _finish(out, _ops.eye(n, -1 if m is None else m, dtype=dtype, device=device), requires_grad)


def randint(
    low: Any,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns random integers from low to before high: `randint(high, size)` or `randint(low, high, size)`."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None or is_scalar(size):
        raise TypeError(f"randint: size must be a sequence of integers, got {size!r}")
    made = _ops.randint(_value(low), high=_value(high), size=size, dtype=dtype, device=device, generator=generator)
    return _finish(out, made, requires_grad)


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns the integers from 0 to n - 1 in random order."""
    return _finish(out, _ops.randperm(n, dtype=dtype, device=device, generator=generator), requires_grad)


def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns normally distributed numbers: with a mean and deviation for each element, or `size` with the same."""
    if size is not None:
        made = _ops.normal_(_ops.empty(size, dtype=dtype, device=device), mean, std, generator=generator)
        return _finish(out, made, requires_grad)
    like = mean if isinstance(mean, TensorBase) else std
    if not isinstance(like, TensorBase):
        raise TypeError("normal: want size, or a tensor for mean or std")
    shape = _ops.add(mean if isinstance(mean, TensorBase) else std, 0 if like is not mean else std).shape  # type: ignore[arg-type]
    noise = _ops.randn(shape, dtype=like.dtype, device=like.device, generator=generator)  # type: ignore[attr-defined]
    return _finish(out, _ops.add(_ops.mul(noise, std), mean), requires_grad)


def _like(name: str) -> Any:
    make = getattr(_ops, name)
    takes_grad = name in ("zeros_like", "ones_like", "empty_like")

    def function(
        input: Tensor,
        *,
        dtype: DType | None = None,
        layout: Any = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        pin_memory: bool = False,
        generator: Generator | None = None,
    ) -> Tensor:
        options = {} if takes_grad else {"generator": generator}
        return _finish(None, make(input, dtype=dtype, device=device, **options), requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Returns what `{name[:-5]}` does, with the shape, dtype and device of a tensor unless others are given."
    )
    return function


zeros_like, ones_like, empty_like = _like("zeros_like"), _like("ones_like"), _like("empty_like")
rand_like, randn_like = _like("rand_like"), _like("randn_like")


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Returns one value with the shape, dtype and device of a tensor."""
    return _finish(None, _ops.full_like(input, _value(fill_value), dtype=dtype, device=device), requires_grad)


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Returns random integers from low to before high with the shape of a tensor; with one bound, from 0."""
    if high is None:
        low, high = 0, low
    made = _ops.randint_like(input, low, high=high, dtype=dtype, device=device, generator=generator)
    return _finish(None, made, requires_grad)


def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    layout: Any = None,
) -> Tensor:
    """Returns the coordinates of the elements on and below a diagonal, in two rows."""
    return _ops.tril_indices(row, col, offset, dtype=dtype, device=device)


def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    layout: Any = None,
) -> Tensor:
    """Returns the coordinates of the elements on and above a diagonal, in two rows."""
    return _ops.triu_indices(row, col, offset, dtype=dtype, device=device)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Returns the matrix of powers of the elements of a vector."""
    return _ops.vander(x, -1 if N is None else N, increasing)


# --- methods: like self, of other sizes ---


def _new(name: str) -> Any:
    def method(
        self: Tensor,
        *sizes: Any,
        size: Any = None,
        dtype: DType | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
    ) -> Tensor:
        made = getattr(_ops, name)(
            _sizes(name, sizes, size), dtype=dtype or self.dtype, device=self.device if device is None else device
        )
        return _finish(None, made, requires_grad)

    method.__name__ = method.__qualname__ = f"new_{name}"
    method.__doc__ = f"Returns what `{name}` does, of the tensor's dtype and on its device unless others are given."
    return method


new_zeros, new_ones, new_empty = _new("zeros"), _new("ones"), _new("empty")


def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Returns one value, of the tensor's dtype and on its device unless others are given."""
    where = self.device if device is None else device
    return full(size, fill_value, dtype=dtype or self.dtype, device=where, requires_grad=requires_grad)


def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a tensor with a copy of data, of this one's dtype and on its device unless others are given."""
    from plait._tensor import tensor

    where = self.device if device is None else device
    return tensor(data, dtype=dtype or self.dtype, device=where, requires_grad=requires_grad)


def new_empty_strided(
    self: Tensor, size: Any, stride: Any, dtype: DType | None = None, device: DeviceLike | None = None, **options: Any
) -> Tensor:
    """Returns what `empty_strided` does, of the tensor's dtype and on its device unless others are given."""
    return empty_strided(
        size, stride, dtype=dtype or self.dtype, device=self.device if device is None else device, **options
    )
