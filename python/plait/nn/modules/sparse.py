"""Embeddings: tables whose rows are looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn import init
from plait.nn.modules.linear import new_parameter
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["Embedding", "EmbeddingBag"]


def _row(name: str, padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"{name}: padding_idx must be within num_embeddings {rows}, got {padding_idx}")
    return padding_idx % rows


class _Table(Module):
    """What embeddings have in common."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None

    def _make_weight(
        self, _weight: Tensor | None, freeze: bool, device: DeviceLike | None, dtype: DType | None
    ) -> None:
        shape = [self.num_embeddings, self.embedding_dim]
        if _weight is None:
            self.weight = new_parameter(*shape, device=device, dtype=dtype)
            self.weight.requires_grad_(not freeze)
            self.reset_parameters()
        else:
            if list(_weight.shape) != shape:
                raise ValueError(f"{self._get_name()}: the weight must be {shape}, got shape {list(_weight.shape)}")
            self.weight = Parameter(_weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        if self.padding_idx is None:
            init.normal_(self.weight)
            return
        with init.whole(self.weight) as weight:
            init.normal_(weight)
            init.zeros_(weight.detach()[self.padding_idx])


class Embedding(_Table):
    """The rows of a table that indices name.

    Args:
        num_embeddings: the number of rows
        embedding_dim: their size
        padding_idx: a row that starts as zeros and is not trained
        max_norm: rows that are used are first scaled to a norm of at most this
        norm_type: which norm
        scale_grad_by_freq: divide a row's gradient by how often its index occurs in the batch
        sparse: whether the gradient of the weight is a sparse tensor
        device: of the table
        dtype: of the table
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _row("Embedding", padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._make_weight(_weight, _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        s = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            s += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            s += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            s += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            s += ", scale_grad_by_freq=True"
        return s + (", sparse=True" if self.sparse else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Returns a layer with the given table, which is trained only if not frozen."""
        if embeddings.ndim != 2:
            raise ValueError(f"Embedding.from_pretrained: want a matrix, got shape {list(embeddings.shape)}")
        rows, cols = embeddings.shape
        return cls(
            rows, cols, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight=embeddings, _freeze=freeze
        )


class EmbeddingBag(_Table):
    """Sums, means or maxima of the rows of a table that bags of indices name.

    Args:
        num_embeddings: the number of rows
        embedding_dim: their size
        max_norm: rows that are used are first scaled to a norm of at most this
        norm_type: which norm
        scale_grad_by_freq: divide a row's gradient by how often its index occurs in the batch
        mode: sum, mean or max
        sparse: whether the gradient of the weight is a sparse tensor
        include_last_offset: offsets ends with the input's length
        padding_idx: an index that does not count
        device: of the table
        dtype: of the table
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.mode, self.include_last_offset = mode, include_last_offset
        self.padding_idx = _row("EmbeddingBag", padding_idx, num_embeddings)
        self._make_weight(_weight, False, device, dtype)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        s = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            s += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            s += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            s += ", scale_grad_by_freq=True"
        s += f", mode={self.mode!r}"
        return s + (f", padding_idx={self.padding_idx}" if self.padding_idx is not None else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Returns a layer with the given table, which is trained only if not frozen."""
        if embeddings.ndim != 2:
            raise ValueError(f"EmbeddingBag.from_pretrained: want a matrix, got shape {list(embeddings.shape)}")
        rows, cols = embeddings.shape
        bag = cls(
            rows,
            cols,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        bag.weight.requires_grad_(not freeze)
        return bag
