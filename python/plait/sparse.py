"""Functions of sparse tensors, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plait import _dtype as dt
from plait import _ops
from plait._engine.missing_names import absent as _absent
from plait._engine.overriding import DISPATCHING
from plait._errors import MissingFeatureError, ShapeError
from plait._functions.decompositions import solve
from plait._tensors.sparse_class import SparseTensor, SparseType, sparse_coo_tensor, sparse_csr_tensor

if TYPE_CHECKING:
    from plait._tensor import Tensor

_NAMES = {
    "FloatTensor": dt.float32,
    "DoubleTensor": dt.float64,
    "HalfTensor": dt.float16,
    "BFloat16Tensor": dt.bfloat16,
    "LongTensor": dt.int64,
    "IntTensor": dt.int32,
    "ShortTensor": dt.int16,
    "CharTensor": dt.int8,
    "ByteTensor": dt.uint8,
}
_TYPES = {n: SparseType(n, (), {"dtype": d, "__module__": "plait.sparse"}) for n, d in _NAMES.items()}
FloatTensor, DoubleTensor, HalfTensor = _TYPES["FloatTensor"], _TYPES["DoubleTensor"], _TYPES["HalfTensor"]
BFloat16Tensor, LongTensor, IntTensor = _TYPES["BFloat16Tensor"], _TYPES["LongTensor"], _TYPES["IntTensor"]
ShortTensor, CharTensor, ByteTensor = _TYPES["ShortTensor"], _TYPES["CharTensor"], _TYPES["ByteTensor"]

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "spsolve",
    "sum",
]


def mm(sparse: Tensor, dense: Tensor, reduce: str = "sum") -> Tensor:
    """Returns the product of two matrices, one of them sparse; that of two sparse ones is sparse.

    Gradients flow to the values of the sparse one and to the dense one.

    Args:
        sparse: a matrix
        dense: another
        reduce: what becomes of the products of a row's entries: their "sum"; or, if `sparse` is in compressed rows,
            "mean", "amax" or "amin", which are 0 where a row has no entries
    """
    if reduce == "sum":
        return _ops.mm(sparse, dense)
    if reduce not in ("mean", "amax", "amin"):
        raise ShapeError(f"mm: want reduce to be sum, mean, amax or amin, got {reduce}")
    if type(sparse) in DISPATCHING:
        from plait._dispatch.operations import aten  # which most programs do without

        return aten._sparse_mm_reduce_impl.default(sparse, dense, reduce)[0]  # type: ignore[no-any-return]
    if not isinstance(sparse, SparseTensor) or not sparse.is_sparse_csr:
        raise NotImplementedError(f"mm: {reduce} wants a matrix in compressed rows, which to_sparse_csr() makes")
    counts = sparse.crow_indices().diff()
    if reduce == "mean":
        return _ops.mm(sparse, dense) / counts.clamp(min=1).unsqueeze(1).to(dense.dtype)
    rows = _ops.repeat_interleave(_ops.arange(end=sparse.shape[0], device=dense.device), counts)
    products = sparse.values().unsqueeze(1) * dense[sparse.col_indices()]
    out = dense.new_zeros(sparse.shape[0], dense.shape[1])
    return out.index_reduce(0, rows, products, reduce, include_self=False)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """Returns `beta * mat + alpha * (mat1 @ mat2)`, where mat1 is sparse."""
    return _ops.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> SparseTensor:
    """Returns `beta * input + alpha * (mat1 @ mat2)` at the entries of input, a sparse matrix in compressed rows."""
    if not isinstance(input, SparseTensor) or not input.is_sparse_csr:
        raise TypeError("sampled_addmm: input must be a sparse matrix in compressed rows; to_sparse_csr() makes one")
    crow, col = input.crow_indices(), input.col_indices()
    values = _ops.csr_sampled_matmul(crow, col, mat1, _ops.transpose(mat2, 0, 1))
    return sparse_csr_tensor(crow, col, values * alpha + input.values() * beta, input.shape)


def sum(input: Tensor, dim: int | Sequence[int] | None = None, dtype: dt.dtype | None = None) -> Tensor:
    """Returns the sum of all elements, or the sums along some dimensions, sparse where sparse dimensions are left."""
    return _ops.sum(input, [] if dim is None else [dim] if isinstance(dim, int) else list(dim), dtype=dtype)


def softmax(input: Tensor, dim: int, *, dtype: dt.dtype | None = None) -> Tensor:
    """Returns the softmax of the entries along a dimension; elements that are no entries count as -inf."""
    return _ops.softmax(input if dtype is None else input.to(dtype), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: dt.dtype | None = None) -> Tensor:
    """Returns the logarithm of the softmax of the entries along a dimension."""
    return _ops.log_softmax(input if dtype is None else input.to(dtype), dim)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: tuple[int, int], layout: Any = None) -> SparseTensor:
    """Returns the sparse matrix whose diagonals, 0 for the main one and above it 1, are the rows of `diagonals`.

    Args:
        diagonals: [n, columns], of which column j goes to column j of the matrix
        offsets: which diagonal each row is: all different
        shape: of the matrix
        layout: `plait.sparse_coo`, which None means, or `plait.sparse_csr`
    """
    rows = diagonals if len(diagonals.shape) == 2 else diagonals.unsqueeze(0)
    which = [int(k) for k in (offsets.reshape(-1)).tolist()]
    if len(which) != rows.shape[0] or len(set(which)) != len(which):
        raise ValueError(f"spdiags: want a different offset for each of {rows.shape[0]} diagonals, got {which}")
    at: list[Tensor] = []
    values: list[Tensor] = []
    for i, k in enumerate(which):
        first, last = max(0, k), min(shape[1], shape[0] + k, rows.shape[1])
        if last > first:
            column = _ops.arange(first, end=last, device=rows.device)
            at.append(_ops.stack([column - k, column]))
            values.append(rows[i, first:last])
    if not at:
        out = sparse_coo_tensor(tuple(shape), dtype=rows.dtype, device=rows.device)
    else:
        out = sparse_coo_tensor(_ops.cat(at, 1), _ops.cat(values), shape)
    return out if layout is None else out.to_sparse(layout=layout)


def spsolve(input: Tensor, other: Tensor, *, left: bool = True) -> Tensor:
    """Returns the x of `input @ x = other` for a square sparse matrix in compressed rows and a dense vector.

    The LU decomposition is that of the matrix as an ordinary one, whose n * n numbers must fit in memory.

    Raises:
        LinAlgError: if the matrix is singular.
    """
    if not isinstance(input, SparseTensor) or not input.is_sparse_csr:
        raise TypeError("spsolve: input must be a sparse matrix in compressed rows; to_sparse_csr() makes one")
    if not left:
        raise MissingFeatureError("spsolve: left=False is not there; solve with the transpose")
    if len(other.shape) != 1 or list(input.shape) != [other.shape[0]] * 2:
        got = f"input {list(input.shape)} and other {list(other.shape)}"
        raise ShapeError(f"spsolve: got {got}, want [n, n] and [n]")
    return solve(input.to_dense(), other)


def _leaf(values: Tensor) -> Tensor:
    return _ops.clone(values.detach()).requires_grad_()


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a check of gradients, as `autograd.gradcheck`, that takes sparse tensors and functions that return them.

    Checked are the values of sparse inputs that require a gradient; results become ordinary tensors. Without
    `masked=True`, inputs get an entry for each element first.
    """

    def split(x: Any, masked: bool) -> tuple[Any, Callable[[Any], Any]]:
        """Returns an ordinary tensor to check, and a function that makes x of it."""
        if not isinstance(x, SparseTensor) or not x.requires_grad:
            return x, lambda v: v
        if not masked:
            dense = x.detach().to_dense()
            rows = dense.reshape(-1, *dense.shape[x.sparse_dim() :])
            at = _ops.nonzero(_ops.ones(*dense.shape[: x.sparse_dim()], device=x.device)).t()
            whole = sparse_coo_tensor(at, rows, x.shape)
            x = whole.to_sparse_csr() if x.is_sparse_csr else whole.coalesce()
        size = x.shape
        if x.is_sparse_csr:
            crow, col, values = x.crow_indices(), x.col_indices(), x.values()
            return _leaf(values), lambda v: sparse_csr_tensor(crow, col, v, size)
        at, coalesced = x._indices(), x.is_coalesced()
        return _leaf(x._values()), lambda v: sparse_coo_tensor(at, v, size, is_coalesced=coalesced)

    def check(func: Callable[..., Any], inputs: Any, **kwargs: Any) -> Any:
        masked = bool(kwargs.pop("masked", False))
        given = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
        parts = [split(x, masked) for x in given]

        def strided(*values: Any) -> Any:
            out = func(*(make(v) for v, (_, make) in zip(values, parts, strict=True)))
            many = isinstance(out, list | tuple)
            found = [y.to_dense() if isinstance(y, SparseTensor) else y for y in (out if many else (out,))]
            return tuple(found) if many else found[0]

        return gradcheck(strided, tuple(x for x, _ in parts), **kwargs)

    return check


class check_sparse_tensor_invariants:  # noqa: N801
    """A context in which the indices of new sparse tensors are checked, which they always are."""

    def __init__(self, enable: bool = True) -> None:
        self._enable = enable

    @staticmethod
    def is_enabled() -> bool:
        """Returns True: indices are always checked."""
        return True

    @staticmethod
    def enable() -> None:
        """Does nothing: indices are always checked."""

    @staticmethod
    def disable() -> None:
        """Does nothing: indices are always checked."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def __getattr__(name: str) -> Any:
    raise _absent("sparse", "plait.sparse", name)
