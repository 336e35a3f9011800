"""Batches of sequences of different lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from plait import _ops
from plait._dtype import float32, float64, int64
from plait._tensor import Tensor
from plait._tensors.arrays import tensor


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


class PackedSequence(_Packed):
    """Sequences of different lengths, step after step, without padding.

    Args:
        data: the elements of all sequences, those of a step together, the longest sequence's first
        batch_sizes: how many sequences each step has
        sorted_indices: where the sequences, sorted by length, come from
        unsorted_indices: where the sequences, in their own order, are in the sorted ones
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        """Returns the sequences; one of the two orders follows from the other."""
        if batch_sizes is None:
            raise ValueError("PackedSequence: batch_sizes is missing; use pack_padded_sequence or pack_sequence")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Returns the sequences on another device or of another dtype."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        orders = [None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *orders)

    def cpu(self) -> PackedSequence:
        """Returns the sequences on the CPU."""
        return self.to(device="cpu")

    def float(self) -> PackedSequence:
        """Returns the sequences in float32."""
        return self.to(dtype=float32)

    def double(self) -> PackedSequence:
        """Returns the sequences in float64."""
        return self.to(dtype=float64)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Returns the inverse of a permutation."""
    if permutation is None:
        return None
    places = _ops.arange(0, end=permutation.numel(), dtype=int64, device=permutation.device)
    return _ops.scatter(_ops.empty_like(permutation), 0, permutation, places)


def _sizes(lengths: list[int]) -> list[int]:
    """Returns how many of the sequences, longest first, each step has."""
    return [sum(1 for n in lengths if n > step) for step in range(lengths[0])]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Returns padded sequences packed.

    Args:
        input: [T, B, ...], or [B, T, ...] if batch_first
        lengths: of the sequences, a list or a tensor
        batch_first: see input
        enforce_sorted: the sequences are sorted by length, longest first
    """
    lens = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    x = _ops.transpose(input, 0, 1) if batch_first else input
    if len(lens) != x.shape[1]:
        raise ValueError(f"pack_padded_sequence: got {len(lens)} lengths for {x.shape[1]} sequences")
    if not lens or min(lens) <= 0:
        raise RuntimeError(f"pack_padded_sequence: lengths must be positive, got {lens}")
    if max(lens) > x.shape[0]:
        raise ValueError(f"pack_padded_sequence: length {max(lens)} exceeds the {x.shape[0]} steps of the input")
    order = None
    if enforce_sorted:
        if any(a < b for a, b in pairwise(lens)):
            raise RuntimeError(f"pack_padded_sequence: lengths must fall, or enforce_sorted be False, got {lens}")
    else:
        by_length = sorted(range(len(lens)), key=lambda i: -lens[i])
        lens = [lens[i] for i in by_length]
        order = tensor(by_length, dtype=int64, device=input.device)
        x = _ops.index_select(x, 1, order)
    sizes = _sizes(lens)
    return PackedSequence(_take_steps(x, sizes), tensor(sizes, dtype=int64), order, None)


def _take_steps(x: Tensor, sizes: list[int]) -> Tensor:
    """Returns the first sizes[t] sequences of each step t, one step after the other."""
    b = x.shape[1]
    rows = [t * b + i for t, n in enumerate(sizes) for i in range(n)]
    flat = _ops.reshape(x, (-1, *x.shape[2:]))
    return _ops.index_select(flat, 0, tensor(rows, dtype=int64, device=x.device))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Returns packed sequences padded, and their lengths.

    Args:
        sequence: the packed sequences
        batch_first: return [B, T, ...], not [T, B, ...]
        padding_value: what follows the shorter ones
        total_length: T, if it is to be larger than the longest sequence
    """
    sizes = [int(n) for n in sequence.batch_sizes.tolist()]
    steps, b = len(sizes), sizes[0]
    if total_length is not None:
        if total_length < steps:
            raise ValueError(f"pad_packed_sequence: total_length {total_length} is below the longest length {steps}")
        steps = total_length
    data = sequence.data
    rows = [t * b + i for t, n in enumerate(sizes) for i in range(n)]
    full = _ops.full(steps * b, *data.shape[1:], fill_value=padding_value, dtype=data.dtype, device=data.device)
    flat = _ops.index_copy(full, 0, tensor(rows, dtype=int64, device=data.device), data)
    out = _ops.reshape(flat, (steps, b, *data.shape[1:]))
    lengths = tensor([sum(1 for n in sizes if n > i) for i in range(b)], dtype=int64)
    if sequence.unsorted_indices is not None:
        out = _ops.index_select(out, 1, sequence.unsorted_indices)
        lengths = _ops.index_select(lengths, 0, sequence.unsorted_indices.to("cpu"))
    return (_ops.transpose(out, 0, 1) if batch_first else out), lengths


def pad_sequence(
    sequences: Sequence[Tensor] | Tensor,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Returns sequences [n, ...] in one tensor [T, B, ...], or [B, T, ...] if batch_first, padded to the longest."""
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be left or right, got {padding_side!r}")
    if isinstance(sequences, Tensor):
        parts = list(_ops.unbind(sequences, 0))
    elif isinstance(sequences, Iterable):
        parts = list(sequences)
    else:
        raise TypeError(f"pad_sequence: want a sequence of tensors, got {type(sequences).__name__}")
    if not parts:
        raise ValueError("pad_sequence: got no sequences")
    longest = max(p.shape[0] for p in parts)
    padded = []
    for p in parts:
        missing = longest - p.shape[0]
        around = [0, 0] * (p.ndim - 1) + ([missing, 0] if padding_side == "left" else [0, missing])
        padded.append(_ops.pad(p, around, "constant", float(padding_value)) if missing else p)
    return _ops.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Returns the sequences that `pad_sequence` joined."""
    x = padded_sequences if batch_first else _ops.transpose(padded_sequences, 0, 1)
    return [_ops.narrow(one, 0, 0, int(n)) for one, n in zip(_ops.unbind(x, 0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Returns sequences [n, ...] packed."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the sequences that `pack_sequence` packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
