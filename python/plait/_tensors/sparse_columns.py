"""Sparse matrices in compressed columns: each holds its transpose in compressed rows, and computes as rows do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from plait import _core
from plait import _dtype as dt
from plait._device import DeviceLike
from plait._engine.arming import DisableTorchFunctionSubclass, arm_for
from plait._engine.runtime import check
from plait._layout import Layout, sparse_csc
from plait._tensor import Tensor
from plait._tensors.sparse_class import SparseTensor, sparse_csr_tensor

# Whose results are in compressed rows.
_IN_ROWS = ("__matmul__", "__rmatmul__", "addmm", "grad", "matmul", "mm", "smm", "t", "to_sparse_csr", "transpose")


class ColumnsTensor(SparseTensor):
    """A sparse matrix in compressed columns. What is computed of one by its elements is in compressed columns, too."""

    is_sparse_csr = property(lambda self: False, doc="Whether it is in compressed rows.")

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Returns what a function does with the matrix in rows, in compressed columns where PyTorch has it so."""
        with DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if type(out) is SparseTensor and out.is_sparse_csr and func.__name__ not in _IN_ROWS:
            return columns_of(out)
        return out

    @property
    def layout(self) -> Layout:
        """How the entries lie: `plait.sparse_csc`."""
        return sparse_csc

    @property
    def _transposed(self) -> SparseTensor:
        """The transpose, in compressed rows."""
        held = self.__dict__.get("_of_transposed")
        if held is None:
            with DisableTorchFunctionSubclass():
                held = _turned(self._rows())
            self.__dict__["_of_transposed"] = held
        return held  # type: ignore[no-any-return]

    def _rows(self) -> SparseTensor:
        """Returns the matrix in compressed rows."""
        made: Any = object.__new__(SparseTensor)
        made._h = check(_core.bind_TensorAlias(self._h))
        return made  # type: ignore[no-any-return]

    def ccol_indices(self) -> Tensor:
        """Returns where the columns begin, and where the last ends: int64, [columns + 1]."""
        return self._transposed.crow_indices()

    def row_indices(self) -> Tensor:
        """Returns the rows of the entries: int64."""
        return self._transposed.col_indices()

    def values(self) -> Tensor:
        """Returns the values, column by column."""
        return self._transposed.values()

    def t(self) -> SparseTensor:
        """Returns the transpose, in compressed rows."""
        return self._transposed

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """Returns the matrix in compressed rows."""
        return self._rows()

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """Returns the matrix itself."""
        return self

    def _named_parts(self) -> dict[str, Any]:
        return {
            "ccol_indices": self.ccol_indices(),
            "row_indices": self.row_indices(),
            "values": self.values().detach(),
        }

    def _made_of(self) -> tuple[Any, ...]:
        return sparse_csc, (*self._named_parts().values(), tuple(self.shape))


def _turned(rows: SparseTensor) -> SparseTensor:
    """Returns the transpose of a matrix in compressed rows, in compressed rows."""
    return rows.to_sparse_coo().t().coalesce().to_sparse_csr()  # type: ignore[no-any-return]


def columns_of(rows: Any, transposed: SparseTensor | None = None) -> ColumnsTensor:
    """Returns a matrix in compressed rows as one in compressed columns.

    Args:
        rows: the matrix
        transposed: its transpose in compressed rows, if it is there already
    """
    arm_for(ColumnsTensor)
    made: Any = object.__new__(ColumnsTensor)
    made._h = check(_core.bind_TensorAlias(rows._h))
    if transposed is not None:
        made.__dict__["_of_transposed"] = transposed
    return made  # type: ignore[no-any-return]


def turned_rows(rows: SparseTensor) -> ColumnsTensor:
    """Returns the transpose of a matrix in compressed rows, in compressed columns: of the same indices and values."""
    return columns_of(_turned(rows), rows)


def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: dt.dtype | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> ColumnsTensor:
    """Returns a sparse matrix in compressed columns.

    Args:
        ccol_indices: where the entries of each column begin, and where those of the last end
        row_indices: the rows of the entries
        values: a number for each entry, through which gradients flow
        size: of the matrix; None means as many rows as the indices need
        dtype: of the result; by default that of the values
        device: where the result goes; by default where the values are
        pin_memory: has no effect
        requires_grad: whether the result collects its gradient, which is sparse
        check_invariants: has no effect: indices are always checked

    Raises:
        RuntimeError: for columns that do not follow each other, and rows outside of the matrix.
    """
    turned = None if size is None else tuple(size)[::-1]
    transposed = sparse_csr_tensor(ccol_indices, row_indices, values, turned, dtype=dtype, device=device)
    if not requires_grad:
        return columns_of(_turned(transposed), transposed)
    out = columns_of(_turned(transposed).detach())
    out.requires_grad = True
    return out
