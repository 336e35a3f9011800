"""Switches of PyTorch's libraries: they can be set and read, and have no effect but for `cudnn.benchmark`."""

from __future__ import annotations

from typing import Any

from plait import _core


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


class _Cudnn(_Switches):
    """The switches of cuDNN, one of which Plait has too."""

    @property
    def benchmark(self) -> bool:
        """Whether GPUs measure which way of computing a matrix product is the fastest, as `PLAIT_TUNE=1` makes them.

        The first product of each class of sizes and layouts then runs in several ways, which takes up to a second or
        two; the fastest is kept in the user's cache, where later processes find it.
        """
        return bool(_core.bind_DeviceBenchmark())

    @benchmark.setter
    def benchmark(self, on: bool) -> None:
        _core.bind_DeviceBenchmarkSet(bool(on))


cudnn = _Cudnn(enabled=False, deterministic=True, allow_tf32=False, benchmark_limit=0)
cuda = _Switches(
    matmul=_Switches(allow_tf32=False, allow_fp16_reduced_precision_reduction=False), preferred_linalg_library=None
)
mps, mkl, mkldnn, openmp, opt_einsum = (_Switches(enabled=False) for _ in range(5))
