"""Switches of PyTorch's libraries: they can be set and read, and have no effect."""

from __future__ import annotations

from typing import Any


class _Switches:
    """Names that can be set, over defaults."""

    def __init__(self, **defaults: Any) -> None:
        self.__dict__.update(defaults)

    def is_available(self) -> bool:
        """Returns False: the library is not used."""
        return False

    def is_built(self) -> bool:
        """Returns False: the library is not used."""
        return False

    def version(self) -> None:
        """Returns None: the library is not used."""


cudnn = _Switches(enabled=False, benchmark=False, deterministic=True, allow_tf32=False, benchmark_limit=0)
cuda = _Switches(
    matmul=_Switches(allow_tf32=False, allow_fp16_reduced_precision_reduction=False), preferred_linalg_library=None
)
mps, mkl, mkldnn, openmp, opt_einsum = (_Switches(enabled=False) for _ in range(5))
