"""Views, splits and joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait._dtype import dtype as DTypeClass
from plait._engine.overriding import OVERRIDING, found_in, handle, looks
from plait._engine.runtime import TensorBase, check, own
from plait._errors import ShapeError
from plait._functions._checked import checked
from plait._functions._common import adopt, check_format, flat, forget_layout, into, numpy_names, store
from plait._functions._fast import does
from plait._layout import Size
from plait._tensors.arrays import tensor

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._layout import Size
    from plait._tensor import Tensor

__all__ = [
    "as_strided", "as_strided_", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "cat",
    "einsum", "flip", "meshgrid", "movedim", "permute", "repeat_interleave", "reshape",
    "resize_as_", "select_scatter", "slice_scatter", "squeeze", "squeeze_", "stack", "swapaxes",
    "swapdims", "t_", "tensordot", "tile", "unravel_index", "unsqueeze_",
]  # fmt: skip


@numpy_names
@does(_ops.cat)
def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Returns tensors joined along a dimension."""
    return into(out, _ops.cat, tensors, dim)


@numpy_names
@does(_ops.stack)
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Returns tensors of one shape joined along a new dimension."""
    return into(out, _ops.stack, tensors, dim)


@numpy_names
@does(_ops.squeeze)
@does(_ops.squeeze, dim=())
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None, *more: int) -> Tensor:
    """Returns a view without dimensions of size 1: all of them, or those given."""
    dim = flat(dim, more)
    if dim is None:
        return _ops.squeeze(input)
    return _ops.squeeze(input, dim) if not isinstance(dim, tuple | list) or dim else input.view(input.shape)


@checked
@does(_ops.flip)
def flip(input: Tensor, dims: int | Sequence[int], *more: int) -> Tensor:
    """Returns the elements in reverse order along dimensions."""
    return _ops.flip(input, flat(dims, more))


@checked
def permute(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Returns a view with the dimensions in the given order."""
    return _ops.permute(input, dims)


@checked
def reshape(input: Tensor, shape: int | Sequence[int]) -> Tensor:
    """Returns the elements in another shape, a view where that is possible; a -1 stands for what remains."""
    return _ops.reshape(input, shape)


def view(
    self: Tensor, size: int | Sequence[int] | DType | None = None, *more: int, dtype: DType | None = None
) -> Tensor:
    """Returns a view of another shape, or of the bits as another dtype, through which no gradient passes."""
    if dtype is None and (made := _core.view(self, size, more)) is not None:
        return made  # type: ignore[no-any-return]
    if isinstance(size, DTypeClass):
        if dtype is not None:
            raise TypeError(f"view: got {size} and dtype={dtype}")
        size, dtype = None, size
    if dtype is None:
        return _ops.view(self, () if size is None else size, *more)
    if size is not None or more:
        raise TypeError(f"view: want a size or a dtype, got {flat(size, more)} and {dtype}")
    if dtype is self.dtype:
        return _ops.view(self, self.shape)
    return own(check(_core.bind_TensorViewDType(self._h, dtype._number)))


@numpy_names
def repeat_interleave(
    input: Tensor | None = None,
    repeats: Tensor | int | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Returns each part of a dimension repeated, next to one another; of the flat tensor by default.

    Args:
        input: the tensor; with nothing else, how often to repeat each index
        repeats: how often: a number, or a vector of one for each part, for which it waits
        dim: the dimension
        output_size: the size of the repeated dimension, if it is known, to compare with
    """
    if repeats is None or input is None:
        repeats = input if repeats is None else repeats
        if not isinstance(repeats, TensorBase):
            kind = type(repeats).__name__
            raise TypeError(f"repeat_interleave: want a tensor of repeats, got {kind} {repeats!r:.60}")
        input, dim = _ops.arange(0, end=repeats.shape[0], device=repeats.device), 0  # type: ignore[attr-defined]
    if input.is_meta and isinstance(repeats, int) and repeats >= 0:  # a tensor there has no values
        source, at = (input.reshape(-1), 0) if dim is None else (input, dim)
        parts = _ops.unsqueeze(source, at + 1 if at >= 0 else at)
        sizes, at = list(source.shape), at % len(source.shape)
        sizes[at] *= repeats
        return parts.expand(*source.shape[: at + 1], repeats, *source.shape[at + 1 :]).reshape(sizes)
    often = repeats if isinstance(repeats, TensorBase) else tensor(repeats, device=input.device)
    out = _ops.repeat_interleave(input, often, dim)  # type: ignore[arg-type]
    if output_size is not None and out.shape[dim or 0] != output_size:
        size = out.shape[dim or 0]
        raise ValueError(f"repeat_interleave: output_size is {output_size}, but the repeats add up to {size}")
    return out


@checked
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Returns the coordinates of a grid: tensor i runs along dimension i, as "ij" says; "xy" swaps the first two."""
    return _ops.meshgrid(_list(tensors), indexing or "ij")


def _list(tensors: tuple[Any, ...]) -> Any:
    return tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors


def _each(name: str) -> Any:
    make = getattr(_ops, name)

    def function(*tensors: Any) -> Any:
        if len(tensors) == 1 and not isinstance(tensors[0], list | tuple):
            return make(tensors[0])
        return tuple(make(t) for t in _list(tensors))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns a view with at least {name[-2]} dimensions, of each tensor."
    return checked(function)


atleast_1d, atleast_2d, atleast_3d = _each("atleast_1d"), _each("atleast_2d"), _each("atleast_3d")


@checked
def block_diag(*tensors: Any) -> Tensor:
    """Returns a matrix with matrices on its diagonal."""
    return _ops.block_diag(_list(tensors))


def einsum(*args: Any) -> Tensor:
    """Returns sums of products of elements that a notation names.

    Either an equation such as "ij,jk->ik" and tensors, or each tensor with a list of the numbers of its dimensions, and
    last perhaps the list for the result.
    """
    if len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], list | tuple):
        args = (args[0], *args[1])  # what overrides the function sees them one by one
    if OVERRIDING and (found := found_in(args, {})) is not None:
        return handle(einsum, found, args, {})  # type: ignore[no-any-return]
    return _einsum(*args)


looks(einsum)


@checked
def _einsum(*args: Any) -> Tensor:
    if isinstance(args[0], str):
        return _ops.einsum(args[0], *args[1:])
    operands, lists = args[0 : len(args) // 2 * 2 : 2], args[1::2]

    def letters(subscripts: Any) -> str:
        return "".join(
            "..." if s is Ellipsis else chr(ord("a") + s) if s < 26 else chr(ord("A") + s - 26) for s in subscripts
        )

    equation = ",".join(letters(s) for s in lists)
    return _ops.einsum(equation + ("->" + letters(args[-1]) if len(args) % 2 else ""), *operands)


@checked
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Returns the sums of products over dimensions: the last `dims` of a and first of b, or two lists of them."""
    if isinstance(dims, int):
        if dims < 0 or dims > min(len(a.shape), len(b.shape)):
            raise ShapeError(
                f"tensordot: cannot sum over {dims} dimensions of shapes {list(a.shape)} and {list(b.shape)}"
            )
        first, second = list(range(len(a.shape) - dims, len(a.shape))), list(range(dims))
    else:
        pair = dims.tolist() if hasattr(dims, "tolist") else dims
        first, second = ([d] if isinstance(d, int) else list(d) for d in pair)
    return store(out, _ops.tensordot(a, b, first, second))


@checked
def broadcast_shapes(*shapes: Any) -> Size:
    """Returns the shape to which shapes broadcast.

    Raises:
        RuntimeError: if they do not.
    """
    sizes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    out = [1] * max((len(s) for s in sizes), default=0)
    for s in sizes:
        for i, n in enumerate(reversed(s), 1):
            if n < 0:
                raise ShapeError(f"broadcast_shapes: sizes must not be negative, got {n}")
            if n != 1 and out[-i] not in (1, n):
                raise ShapeError(f"broadcast_shapes: shapes {[list(s) for s in sizes]} do not fit")
            out[-i] = n if n != 1 else out[-i]
    return Size(out)


@checked
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Returns a view with the given sizes and strides; the offset counts from the start of the storage."""
    offset = 0 if storage_offset is None else storage_offset - input.storage_offset()
    return _ops.as_strided(input, size, stride, offset)


def sum_to_size(self: Tensor, size: int | Sequence[int] = (), *more: int) -> Tensor:
    """Returns the sum over the dimensions that broadcasting a tensor of the given sizes to this one would add."""
    given = flat(size, more)
    want = (given,) if isinstance(given, int) else tuple(given)
    lead = len(self.shape) - len(want)
    kept = self.shape[lead:] if lead >= 0 else ()
    if lead < 0 or any(n not in (1, have) for n, have in zip(want, kept, strict=True)):
        raise ShapeError(f"sum_to_size: size {list(want)} does not broadcast to shape {list(self.shape)}")
    if not want:
        return _ops.sum(self)
    dims = [*range(lead), *(lead + i for i, n in enumerate(want) if n == 1 and kept[i] != 1)]
    return _ops.reshape(_ops.sum(self, dims, True), want) if dims else self


@checked
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Returns the tensor with `src` at one index of a dimension."""
    return _ops.select_scatter(input, src, dim, index)


@checked
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the tensor with `src` in a slice of a dimension."""
    stop = input.size(dim) if end is None else end
    return store(out, _ops.slice_scatter(input, src, dim, start or 0, stop, step))


@checked
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Returns the coordinates that row-major indices of a shape mean, a tensor for each dimension."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    out: list[Tensor] = []
    for n in reversed(sizes):
        out.insert(0, _ops.remainder(indices, n).long())
        indices = _ops.floor_divide(indices, n)
    return tuple(out)


# --- in place: the tensor becomes the view ---


def _become(name: str, t: Tensor, view: Tensor) -> Tensor:
    """Makes a tensor the view that an operation made of it."""
    if t.requires_grad and t.is_leaf:
        if _core.bind_GradEnabled():
            raise RuntimeError(f"{name}: a leaf that requires a gradient cannot become a view of itself")
        return adopt(t, view)  # it stays the leaf it is
    t._h, view._h = view._h, t._h
    forget_layout(t)
    return t


@checked
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Returns a view with two dimensions exchanged."""
    return _ops.transpose(input, axis0, axis1)


def swapaxes_(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Exchanges two dimensions."""
    return transpose_(input, axis0, axis1)


@checked
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Returns a view with two dimensions exchanged."""
    return _ops.transpose(input, dim0, dim1)


@checked
def tile(input: Tensor, dims: int | Sequence[int], *more: int) -> Tensor:
    """Returns the tensor repeated along its last dimensions."""
    return _ops.tile(input, dims, *more)


def transpose_(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchanges two dimensions."""
    return _become("transpose_", input, _ops.transpose(input, dim0, dim1))


@checked
def t_(input: Tensor) -> Tensor:
    """Transposes a matrix."""
    return _become("t_", input, _ops.t(input))


@checked
def squeeze_(input: Tensor, dim: int | Sequence[int] | None = None, *more: int) -> Tensor:
    """Drops dimensions of size 1."""
    return _become("squeeze_", input, squeeze(input, dim, *more))


@checked
def unsqueeze_(input: Tensor, dim: int) -> Tensor:
    """Adds a dimension of size 1."""
    return _become("unsqueeze_", input, _ops.unsqueeze(input, dim))


@checked
def as_strided_(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Gives the tensor other sizes and strides over its storage."""
    return _become("as_strided_", input, as_strided(input, size, stride, storage_offset))


def resize_(input: Tensor, size: int | Sequence[int], *more: int, memory_format: Any = None) -> Tensor:
    """Gives the tensor another size, row-major; elements that were not there before are undefined."""
    check_format("resize_", memory_format)
    if input.requires_grad:
        raise RuntimeError("resize_: a tensor that requires a gradient cannot be resized")
    given = flat(size, more)
    size = (given,) if isinstance(given, int) else tuple(given)
    n = 1
    for s in size:
        n *= s
    if n < 0 or any(s < 0 for s in size):
        raise ValueError(f"resize_: sizes must not be negative, got {list(size)}")
    room = input.untyped_storage().nbytes() // input.element_size() - input.storage_offset()
    if n > room and input.device.type == "cpu" and room and input.is_shared():
        raise RuntimeError(
            f"resize_: {n} elements do not fit into the shared memory, which has room for {room} and cannot grow"
        )
    if n > room:
        larger = _ops.empty(n, dtype=input.dtype, device=input.device)
        if room:
            _ops.copy_(_ops.narrow(larger, 0, 0, room), _ops.as_strided(input, (room,), (1,)))
        return adopt(input, _ops.view(larger, size))
    strides: list[int] = []
    step = 1
    for s in reversed(size):
        strides.insert(0, step)
        step *= max(s, 1)
    return adopt(input, _ops.as_strided(input, size, strides))


@numpy_names
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """Gives the tensor the size of another."""
    return resize_(input, the_template.shape, memory_format=memory_format)


@checked
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Returns a view with dimensions moved to other positions."""
    return _ops.movedim(input, source, destination)
