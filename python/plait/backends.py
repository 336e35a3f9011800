"""Switches of PyTorch's libraries: they can be set and read, and have no effect but for `cudnn.benchmark`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from plait import _core


class _Switches(ModuleType):
    """Names that can be set, over defaults; a module, which scripts import as `plait.backends.cudnn`."""

    def __init__(self, name: str, **defaults: Any) -> None:
        super().__init__(f"{__name__}.{name}", self.__doc__)
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


cudnn = _Cudnn("cudnn", enabled=False, deterministic=True, allow_tf32=False, benchmark_limit=0)
cuda = _Switches(
    "cuda",
    matmul=_Switches("cuda.matmul", allow_tf32=False, allow_fp16_reduced_precision_reduction=False),
    preferred_linalg_library=None,
)
mps, mkl, mkldnn, openmp, opt_einsum = (
    _Switches(name, enabled=False) for name in ("mps", "mkl", "mkldnn", "openmp", "opt_einsum")
)
sys.modules.update({m.__name__: m for m in (cudnn, cuda, mps, mkl, mkldnn, openmp, opt_einsum)})
