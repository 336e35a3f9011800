"""The class of sparse tensors, and the functions that make them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import DeviceLike
from plait._engine.arming import disabled_torch_function
from plait._engine.runtime import address, call, is_tensor, own
from plait._layout import Layout, sparse_coo, sparse_csc, sparse_csr
from plait._tensor import Tensor
from plait._tensors.arrays import tensor
from plait._tensors.elements import RequiresGrad
from plait._tensors.repr import sparse_repr
from plait._tensors.sparse import _COL, _CROW, _CSR, _INDICES, _VALUES, form_of, part_of


class SparseTensor(Tensor):
    """A tensor that has values at the indices of its entries, and zeros elsewhere. `sparse_coo_tensor` makes one.

    The gradient of a sparse leaf is sparse, with the same entries. Operations that are not defined for sparse tensors
    raise NotImplementedError.
    """

    __slots__ = ()
    __torch_function__ = disabled_torch_function
    _form = property(form_of)
    is_sparse = property(lambda self: self._form[0] != _CSR, doc="Whether each entry has an index.")
    is_sparse_csr = property(lambda self: self._form[0] == _CSR, doc="Whether it is in compressed rows.")

    @property
    def layout(self) -> Layout:
        """How the entries lie: `plait.sparse_coo` or `plait.sparse_csr`."""
        return sparse_csr if self.is_sparse_csr else sparse_coo

    def sparse_dim(self) -> int:
        """Returns how many dimensions have indices."""
        return self._form[1]

    def dense_dim(self) -> int:
        """Returns how many dimensions the values have."""
        return self._form[2]

    def _nnz(self) -> int:
        return self._form[3]

    def is_coalesced(self) -> bool:
        """Whether the entries are in order, and all different."""
        self._want("is_coalesced", sparse_coo)
        return bool(self._form[4])

    def coalesce(self) -> Any:
        """Returns the tensor with its entries in order, those with equal indices summed; itself if it is so."""
        self._want("coalesce", sparse_coo)
        return self if self._form[4] else own(call(_core.bind_SparseCoalesce, self._h))

    def _want(self, name: str, layout: Layout) -> None:
        if self.layout is not layout:
            kind = "row compressed" if layout is sparse_csr else "coordinate"
            got = {sparse_coo: "Sparse", sparse_csr: "SparseCsr", sparse_csc: "SparseCsc"}[self.layout]
            raise RuntimeError(f"{name}: expected sparse {kind} tensor layout but got {got}")

    def indices(self) -> Tensor:
        """Returns the indices: int64, [sparse dimensions, entries].

        Raises:
            RuntimeError: if the tensor is not coalesced.
        """
        self._want("indices", sparse_coo)
        self._want_coalesced("indices")
        return part_of(self, _INDICES)

    def values(self) -> Tensor:
        """Returns the values: [entries, dense dimensions].

        Raises:
            RuntimeError: if the tensor is not coalesced.
        """
        self._want_coalesced("values")
        return part_of(self, _VALUES)

    def _want_coalesced(self, name: str) -> None:
        if not self._form[4]:
            raise RuntimeError(f"{name}: Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")

    def crow_indices(self) -> Tensor:
        """Returns where the rows begin, and where the last ends: int64, [rows + 1]."""
        self._want("crow_indices", sparse_csr)
        return part_of(self, _CROW)

    def col_indices(self) -> Tensor:
        """Returns the columns of the entries: int64."""
        self._want("col_indices", sparse_csr)
        return part_of(self, _COL)

    def t(self) -> Any:
        """Returns the transpose: of a matrix in compressed rows it is in compressed columns."""
        if self.is_sparse_csr:
            from plait._tensors.sparse_columns import turned_rows

            return turned_rows(self)
        return _ops.t(self)

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Returns the tensor with two dimensions exchanged: see `t`."""
        compressed = self._form[0] == _CSR
        if compressed and {dim0 % 2, dim1 % 2} == {0, 1}:
            return self.t()
        return _ops.transpose(self, dim0, dim1)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """Returns the matrix in compressed columns; see `Tensor.to_sparse_csc`."""
        from plait._tensors.sparse_columns import columns_of

        return columns_of(self.to_sparse_csr(dense_dim))

    def _named_parts(self) -> dict[str, Any]:
        """Returns what the tensor is made of, by the name that it prints with."""
        if self.is_sparse_csr:
            names = {"crow_indices": _CROW, "col_indices": _COL, "values": _VALUES}
        else:
            names = {"indices": _INDICES, "values": _VALUES}
        return {name: part_of(self, which).detach() for name, which in names.items()}

    def _indices(self) -> Tensor:
        self._want("_indices", sparse_coo)
        return part_of(self, _INDICES)

    def _values(self) -> Tensor:
        self._want("_values", sparse_coo)
        return part_of(self, _VALUES).detach()

    # --- what ordinary tensors do with their memory ---

    def numpy(self, *, force: bool = False) -> Any:
        """Raises TypeError: NumPy has no sparse arrays."""
        raise TypeError(f"numpy: can't convert {self.layout} tensor to numpy. Use Tensor.to_dense() first.")

    def tolist(self) -> Any:
        """Raises TypeError: lists are not sparse."""
        raise TypeError("tolist: the elements of a sparse tensor are not listed. Use Tensor.to_dense() first.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Returns False: a sparse tensor has no memory of its own."""
        return False

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        at = list(index) if isinstance(index, tuple) else [index]
        for i, part in enumerate(at):
            if part is ...:
                at[i : i + 1] = [slice(None)] * (self.dim() - len(at) + 1)
                break
        numbers = [i for i in at if isinstance(i, int) and not isinstance(i, bool)]
        slices = [i for i in at if isinstance(i, slice) and i == slice(None)]
        if not numbers or len(numbers) + len(slices) < len(at):
            raise NotImplementedError(
                f"index: a sparse tensor takes numbers and whole dimensions, got {index!r:.60}; use index_select, "
                "or to_dense()"
            )
        out: Any = self.to_sparse_coo() if slices else self
        for d in reversed(range(len(at))):
            if not isinstance(at[d], slice):
                out = _ops.select(out, d, at[d])
        return out

    def __setitem__(self, index: Any, value: Any) -> None:
        raise NotImplementedError("index: the entries of a sparse tensor do not change; make a new one of its indices")

    # --- copies ---

    def _deep_copied(self, memo: dict[int, Any]) -> Tensor:
        return _ops.clone(self.detach())

    def _made_of(self) -> tuple[Any, ...]:
        """Returns what PyTorch's checkpoints hold of a sparse tensor: its layout, and the tensors and sizes."""
        values, size = part_of(self, _VALUES).detach(), tuple(self.shape)
        if self.is_sparse_csr:
            return sparse_csr, (part_of(self, _CROW), part_of(self, _COL), values, size)
        return sparse_coo, (part_of(self, _INDICES), values, size, bool(self._form[4]))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _unpickled, (*self._made_of(), RequiresGrad(self), dict(self.__dict__))

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return sparse_repr(self)


def rebuilt(layout: Any, data: Any) -> Any:
    """Returns the sparse tensor of what `SparseTensor._made_of` returned."""
    if layout is sparse_csr:
        crow, col, values, size = data
        return sparse_csr_tensor(crow, col, values, size)
    if layout is sparse_csc:
        from plait._tensors.sparse_columns import sparse_csc_tensor

        return sparse_csc_tensor(*data)
    indices, values, size, *coalesced = data
    return sparse_coo_tensor(indices, values, size, is_coalesced=bool(coalesced and coalesced[0]))


def _unpickled(layout: Any, data: Any, requires_grad: bool, state: dict[str, Any]) -> Any:
    out = rebuilt(layout, data)
    out.requires_grad = requires_grad
    out.__dict__.update(deepcopy(state))
    return out


def _as_values(values: Any, dtype: Any, device: Any) -> Any:
    if is_tensor(values):
        return values.to(device=device, dtype=dtype)
    return tensor(values, dtype=dtype, device=device)


def _as_indices(name: str, what: str, indices: Any, device: Any) -> Any:
    out = indices.to(device=device) if is_tensor(indices) else tensor(indices, device=device)
    if out.numel() == 0 and not is_tensor(indices):
        out = out.to(dt.int64)
    if out.dtype.is_floating_point or out.dtype.is_complex or out.dtype is dt.bool_:
        raise TypeError(f"{name}: {what} must be integers, got {out.dtype}")
    return out


def _sizes(size: Any) -> tuple[Any, int]:
    if size is None:
        return array("q"), -1
    sizes = array("q", [int(n) for n in size])
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"sparse tensor: sizes must not be negative, got {list(sizes)}")
    return sizes, len(sizes)


def sparse_coo_tensor(
    indices: Any,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: dt.dtype | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """Returns a sparse tensor with values at indices; those with equal indices are summed.

    Args:
        indices: whole numbers, [sparse dimensions, entries]; without values, the size of a tensor without entries
        values: [entries, dense dimensions...], through which gradients flow
        size: of the whole tensor; None means as small as the indices allow
        dtype: of the result; by default that of the values
        device: where the result goes; by default where the values are
        pin_memory: has no effect
        requires_grad: whether the result collects its gradient, which is sparse
        check_invariants: has no effect: indices are always checked
        is_coalesced: whether the entries are in order, and all different

    Raises:
        RuntimeError: for an index that is negative or too large, and for sizes that do not fit.
    """
    if values is None:
        sizes = tuple(int(n) for n in (size if size is not None else indices))
        indices, size = _ops.zeros(len(sizes), 0, dtype=dt.int64, device=device), sizes
        values = _ops.zeros(0, dtype=dtype, device=device)
    values = _as_values(values, dtype, device)
    at = _as_indices("sparse_coo_tensor", "indices", indices, values.device)
    shape, dims = _sizes(size)
    out: Any = own(call(_core.bind_SparseCOO, at._h, values._h, address(shape), dims))
    if is_coalesced:
        out = out.coalesce()
    if requires_grad:
        out.requires_grad = True
    return out


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: dt.dtype | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """Returns a sparse matrix in compressed rows.

    Args:
        crow_indices: where the entries of each row begin, and where those of the last end
        col_indices: the columns of the entries
        values: a number for each entry, through which gradients flow
        size: of the matrix; None means as many columns as the indices need
        dtype: of the result; by default that of the values
        device: where the result goes; by default where the values are
        pin_memory: has no effect
        requires_grad: whether the result collects its gradient, which is sparse
        check_invariants: has no effect: indices are always checked

    Raises:
        RuntimeError: for rows that do not follow each other, and columns outside of the matrix.
    """
    values = _as_values(values, dtype, device)
    crow = _as_indices("sparse_csr_tensor", "crow_indices", crow_indices, values.device)
    col = _as_indices("sparse_csr_tensor", "col_indices", col_indices, values.device)
    shape, dims = _sizes(size)
    out: Any = own(call(_core.bind_SparseCSR, crow._h, col._h, values._h, address(shape), dims))
    if requires_grad:
        out.requires_grad = True
    return out


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: dt.dtype | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseTensor:
    """Returns a sparse matrix in compressed rows, or columns: see `sparse_csr_tensor`, `sparse_csc_tensor`.

    Args:
        compressed_indices: where the entries of each row, or column, begin, and where those of the last end
        plain_indices: the columns, or rows, of the entries
        values: a number for each entry, through which gradients flow
        size: of the matrix; None means as many columns as the indices need
        dtype: of the result; by default that of the values
        layout: `plait.sparse_csr` or `plait.sparse_csc`
        device: where the result goes; by default where the values are
        pin_memory: has no effect
        requires_grad: whether the result collects its gradient, which is sparse
        check_invariants: has no effect: indices are always checked
    """
    make: Any = sparse_csr_tensor
    if layout is sparse_csc:
        from plait._tensors.sparse_columns import sparse_csc_tensor

        make = sparse_csc_tensor
    elif layout is not sparse_csr:
        raise NotImplementedError(
            f"sparse_compressed_tensor: layout must be plait.sparse_csr or plait.sparse_csc, got {layout}"
        )
    return make(  # type: ignore[no-any-return]
        compressed_indices, plain_indices, values, size, dtype=dtype, device=device, requires_grad=requires_grad
    )


class SparseType(type):
    """The class of sparse types by dtype, as older programs name them: `sparse.FloatTensor(indices, values, size)`."""

    dtype: dt.dtype

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, SparseTensor) and value.is_sparse and value.dtype is cls.dtype

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        """Returns a sparse tensor of indices, values and perhaps a size, or one without entries of the given sizes."""
        if data and is_tensor(data[0]):
            out = sparse_coo_tensor(*data, device=device)
            if out.dtype is not cls.dtype:
                raise TypeError(f"sparse.{cls.__name__}: want values of {cls.dtype}, got {out.dtype}")
            return out
        sizes = data[0] if len(data) == 1 and not isinstance(data[0], int) else data
        return sparse_coo_tensor(tuple(sizes), dtype=cls.dtype, device=device)


_core.set_sparse_class(SparseTensor)
