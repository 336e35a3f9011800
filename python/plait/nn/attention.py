"""Which implementation attention takes: there is one, so these names have no effect."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """Implementations of attention that programs ask for."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Does nothing: `scaled_dot_product_attention` keeps no scores and computes in blocks in any case."""
    for b in [backends] if isinstance(backends, SDPBackend) else backends:
        if not isinstance(b, SDPBackend):
            raise TypeError(f"sdpa_kernel: want an SDPBackend, got {type(b).__name__}")
    yield
