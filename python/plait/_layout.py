"""Sizes, and names for how elements lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from plait._engine import spelling


class Size(tuple[int, ...]):
    """The sizes of a tensor's dimensions."""

    __slots__ = ()

    def numel(self) -> int:
        """Returns the number of elements."""
        n = 1
        for size in self:
            n *= size
        return n

    def __repr__(self) -> str:
        return f"{spelling.package}.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, item: Any) -> Any:
        out = super().__getitem__(item)
        return Size(out) if isinstance(item, slice) else out

    def __add__(self, other: Any) -> Size:
        return Size(super().__add__(other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Size:
        return Size(other).__add__(self) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Size:
        return Size(super().__mul__(times)) if isinstance(times, int | np.integer) else NotImplemented

    __rmul__ = __mul__


class Layout:
    """How elements lie in memory: `plait.strided`, or of a sparse tensor `plait.sparse_coo` or `plait.sparse_csr`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{spelling.package}.{self._name}"

    def __reduce__(self) -> str:
        return self._name


strided, sparse_coo, sparse_csr = Layout("strided"), Layout("sparse_coo"), Layout("sparse_csr")
# Of these there are no tensors; programs compare layouts with them.
sparse_csc, sparse_bsr, sparse_bsc = Layout("sparse_csc"), Layout("sparse_bsr"), Layout("sparse_bsc")


class MemoryFormat:
    """The order in which elements are asked to lie; it has no effect: new tensors lie row-major."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{spelling.package}.{self._name}"

    def __reduce__(self) -> str:
        return self._name


contiguous_format, preserve_format = MemoryFormat("contiguous_format"), MemoryFormat("preserve_format")
channels_last, channels_last_3d = MemoryFormat("channels_last"), MemoryFormat("channels_last_3d")
