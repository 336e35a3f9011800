"""Sparse tensors: entries at indices, and zeros elsewhere."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from plait import _core
from plait._engine.runtime import address, call, check, own
from plait._layout import sparse_coo, sparse_csc, sparse_csr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait._tensor import Tensor

_DENSE, _COO, _CSR = range(3)
_INDICES, _VALUES, _CROW, _COL = range(4)


class TensorSparsity:
    """The methods that make tensors sparse, and those that only sparse ones have something to say to."""

    __slots__ = ()
    if TYPE_CHECKING:
        _h: int
        shape: Any

    def to_sparse(
        self,
        sparse_dim: int | None = None,
        *,
        layout: Any = None,
        blocksize: Sequence[int] | None = None,
        dense_dim: int | None = None,
    ) -> Any:
        """Returns the elements that are not zero as a sparse tensor.

        Args:
            sparse_dim: how many of the dimensions, the first ones, get indices; None means all
            layout: `plait.sparse_coo`, which None means, `plait.sparse_csr` or `plait.sparse_csc`
            blocksize: must be None: there are no blocks
            dense_dim: in place of sparse_dim, how many of the dimensions, the last ones, get none
        """
        if layout not in (None, sparse_coo, sparse_csr, sparse_csc):
            raise NotImplementedError(f"to_sparse: layout must be sparse_coo, sparse_csr or sparse_csc, got {layout!r}")
        if blocksize is not None:
            raise NotImplementedError(f"to_sparse: there are no blocks, got blocksize={blocksize}")
        if layout is sparse_csr:
            return self.to_sparse_csr(dense_dim)
        if layout is sparse_csc:
            return self.to_sparse_csc(dense_dim)
        if dense_dim is not None:
            if sparse_dim is not None:
                raise ValueError(f"to_sparse: got both sparse_dim={sparse_dim} and dense_dim={dense_dim}")
            sparse_dim = len(self.shape) - dense_dim
            if not 1 <= sparse_dim <= len(self.shape):
                raise ValueError(f"to_sparse: dense_dim must lie between 0 and {len(self.shape) - 1}, got {dense_dim}")
        return own(call(_core.bind_SparseTo, self._h, _COO, -1 if sparse_dim is None else sparse_dim))

    def to_sparse_coo(self) -> Any:
        """Returns the tensor as a sparse one with an index for each entry."""
        return own(call(_core.bind_SparseTo, self._h, _COO, -1))

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """Returns the matrix as a sparse one in compressed rows.

        Args:
            dense_dim: 0 or None: values are numbers
        """
        if dense_dim:
            raise NotImplementedError(f"to_sparse_csr: values without dense dimensions only, got dense_dim={dense_dim}")
        return own(call(_core.bind_SparseTo, self._h, _CSR, -1))

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """Returns the matrix as a sparse one in compressed columns.

        Args:
            dense_dim: 0 or None: values are numbers
        """
        return self.to_sparse_csr(dense_dim).to_sparse_csc()

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
        """Returns all elements as an ordinary tensor; an ordinary one as it is.

        Args:
            dtype: of the result
            masked_grad: None or True: the gradient of a sparse tensor is that of its entries
        """
        if masked_grad is False:
            raise NotImplementedError(
                "to_dense: the gradient of a sparse tensor is that of its entries: masked_grad=True"
            )
        out: Any = self
        if type(self)._form is not None:
            out = own(call(_core.bind_SparseTo, self._h, _DENSE, -1))
        return out if dtype is None else out.to(dtype)

    def sparse_mask(self, mask: Tensor) -> Any:
        """Returns the elements at the entries of the sparse tensor `mask`, as a sparse tensor."""
        return own(call(_core.bind_SparseMask, self._h, mask._h))

    _form: Any = None  # a sparse tensor's layout and sizes

    def sparse_dim(self) -> int:
        """Returns how many dimensions have indices: 0 of an ordinary tensor."""
        return 0

    def dense_dim(self) -> int:
        """Returns how many dimensions have none."""
        return len(self.shape)

    def is_coalesced(self) -> bool:
        """Whether the entries of a sparse tensor are in order, and all different."""
        raise _not_sparse("is_coalesced", self)

    def coalesce(self) -> Any:
        """Returns a sparse tensor with its entries in order, those with equal indices summed."""
        raise _not_sparse("coalesce", self)

    def indices(self) -> Any:
        """Returns the indices of a coalesced sparse tensor: int64, [sparse dimensions, entries]."""
        raise _not_sparse("indices", self)

    def values(self) -> Any:
        """Returns the values of a sparse tensor: [entries, dense dimensions]."""
        raise _not_sparse("values", self)

    def crow_indices(self) -> Any:
        """Returns where the rows of a sparse matrix in compressed rows begin, and where the last ends."""
        raise _not_sparse("crow_indices", self)

    def col_indices(self) -> Any:
        """Returns the columns of the entries of a sparse matrix in compressed rows."""
        raise _not_sparse("col_indices", self)

    def ccol_indices(self) -> Any:
        """Returns where the columns of a sparse matrix in compressed columns begin, and where the last ends."""
        raise _not_sparse("ccol_indices", self)

    def row_indices(self) -> Any:
        """Returns the rows of the entries of a sparse matrix in compressed columns."""
        raise _not_sparse("row_indices", self)

    def _indices(self) -> Any:
        raise _not_sparse("_indices", self)

    def _values(self) -> Any:
        raise _not_sparse("_values", self)

    def _nnz(self) -> int:
        raise _not_sparse("_nnz", self)


def _not_sparse(name: str, t: Any) -> RuntimeError:
    kind = "row compressed" if name.startswith(("crow", "col_")) else "coordinate"
    kind = "column compressed" if name.startswith(("ccol", "row_")) else kind
    got = "Strided" if type(t)._form is None else str(t.layout)
    return RuntimeError(
        f"{name}: expected sparse {kind} tensor layout but got {got}, shape {list(t.shape)}; to_sparse() makes one"
    )


def form_of(t: Any) -> array[int]:
    """Returns a sparse tensor's layout, its numbers of sparse and dense dimensions and of entries, and if coalesced."""
    out = array("q", bytes(40))
    check(_core.bind_SparseForm(t._h, address(out)))
    return out


def part_of(t: Any, which: int) -> Any:
    """Returns what a sparse tensor is made of."""
    return own(check(_core.bind_SparsePart(t._h, which)))
