"""Switches of PyTorch's libraries. They can be set and read; those of precision and `cudnn.benchmark` have an effect.

Products are as precise as their dtype unless a program asks for less. Two switches therefore are off at first that are
on in PyTorch: `cudnn.allow_tf32`, for convolutions, and `cuda.matmul.allow_bf16_reduced_precision_reduction`, with its
twin for float16.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from plait import _core
from plait._engine.precision import (
    BFLOAT16_SUMS,
    FLOAT16_SUMS,
    TF32_CONVOLUTIONS,
    TF32_PRODUCTS,
    permit,
    permitted,
)

__path__: list[str] = []  # a package, whose modules are made below


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


class _Switch:
    """An attribute that turns a permission on and off."""

    def __init__(self, permission: int, doc: str) -> None:
        self.permission, self.__doc__ = permission, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: ModuleType, owner: type | None = None) -> Any:
        return permitted(self.permission)

    def __set__(self, module: ModuleType, on: bool) -> None:
        if not isinstance(on, bool):
            raise TypeError(f"{module.__name__}.{self.name}: want a bool, got {type(on).__name__} {on!r}")
        permit(self.permission, on)


class _Precision(_Switch):
    """The same by the name of a precision of float32."""

    def __get__(self, module: ModuleType, owner: type | None = None) -> Any:
        return "tf32" if permitted(self.permission) else "ieee"

    def __set__(self, module: ModuleType, precision: Any) -> None:
        if precision not in ("none", "ieee", "tf32"):
            raise ValueError(f"{module.__name__}.{self.name}: want ieee, tf32 or none, got {precision!r}")
        permit(self.permission, precision == "tf32")


class _Products(_Switches):
    """How precisely NVIDIA GPUs compute matrix products."""

    allow_tf32 = _Switch(
        TF32_PRODUCTS, "Whether float32 factors may be rounded to TF32, as `set_float32_matmul_precision` says too."
    )
    fp32_precision = _Precision(TF32_PRODUCTS, """The same as a word: "ieee" or "tf32".""")
    allow_fp16_reduced_precision_reduction = _Switch(
        FLOAT16_SUMS, "Whether partial sums of float16 products may be rounded to float16; in PyTorch True at first."
    )
    allow_bf16_reduced_precision_reduction = _Switch(
        BFLOAT16_SUMS, "Whether partial sums of bfloat16 products may be rounded to bfloat16; in PyTorch True at first."
    )


class _Convolutions(_Switches):
    """How precisely NVIDIA GPUs compute convolutions."""

    fp32_precision = _Precision(TF32_CONVOLUTIONS, """The precision of float32: "ieee" or "tf32".""")


class _Cudnn(_Switches):
    """The switches of cuDNN, some of which Plait has too."""

    allow_tf32 = _Switch(
        TF32_CONVOLUTIONS, "Whether convolutions may round float32 factors to TF32; in PyTorch True at first."
    )
    fp32_precision = _Precision(TF32_CONVOLUTIONS, """The same as a word: "ieee" or "tf32".""")

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

    @contextlib.contextmanager
    def flags(
        self,
        enabled: bool = False,
        benchmark: bool = False,
        benchmark_limit: int = 10,
        deterministic: bool = False,
        allow_tf32: bool | None = None,
        fp32_precision: str = "none",
    ) -> Iterator[None]:
        """Sets switches within a context.

        Args:
            enabled: can be read, and has no effect, as benchmark_limit and deterministic
            benchmark: whether GPUs measure, see there
            benchmark_limit: see enabled
            deterministic: see enabled
            allow_tf32: whether convolutions may round to TF32; by default as before, where PyTorch allows it
            fp32_precision: the same by "ieee" or "tf32"
        """
        values = {
            "enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit,
            "deterministic": deterministic, "allow_tf32": self.allow_tf32 if allow_tf32 is None else allow_tf32,
        }  # fmt: skip
        before = {name: getattr(self, name) for name in values}
        try:
            for name, value in values.items():
                setattr(self, name, value)
            if fp32_precision != "none":
                self.fp32_precision = fp32_precision
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


class _Cuda(_Switches):
    """Which ways of computing attention PyTorch may choose. Plait has one, whatever is said here."""

    _attention: dict[str, bool]

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Has no effect but on `flash_sdp_enabled`."""
        self._attention["flash"] = bool(enabled)

    def flash_sdp_enabled(self) -> bool:
        """Returns what `enable_flash_sdp` was told; at first True."""
        return self._attention["flash"]

    def enable_mem_efficient_sdp(self, enabled: bool) -> None:
        """Has no effect but on `mem_efficient_sdp_enabled`."""
        self._attention["mem_efficient"] = bool(enabled)

    def mem_efficient_sdp_enabled(self) -> bool:
        """Returns what `enable_mem_efficient_sdp` was told; at first True."""
        return self._attention["mem_efficient"]

    def enable_math_sdp(self, enabled: bool) -> None:
        """Has no effect but on `math_sdp_enabled`."""
        self._attention["math"] = bool(enabled)

    def math_sdp_enabled(self) -> bool:
        """Returns what `enable_math_sdp` was told; at first True."""
        return self._attention["math"]

    def enable_cudnn_sdp(self, enabled: bool) -> None:
        """Has no effect but on `cudnn_sdp_enabled`."""
        self._attention["cudnn"] = bool(enabled)

    def cudnn_sdp_enabled(self) -> bool:
        """Returns what `enable_cudnn_sdp` was told; at first True."""
        return self._attention["cudnn"]


cudnn = _Cudnn("cudnn", enabled=False, deterministic=True, benchmark_limit=0, conv=_Convolutions("cudnn.conv"))
cuda = _Cuda(
    "cuda",
    _attention={"flash": True, "mem_efficient": True, "math": True, "cudnn": True},
    matmul=_Products("cuda.matmul", allow_fp16_accumulation=False),
    preferred_linalg_library=None,
)


class _Processor(_Switches):
    """The instructions of processors."""

    def get_cpu_capability(self) -> str:
        """Returns the newest instructions that kernels use: "AVX512", "AVX2" or "DEFAULT"."""
        names = {"amx": "AVX512", "avx512_bf16": "AVX512", "avx512": "AVX512", "avx2": "AVX2"}
        return names.get(_core.bind_CPUInstructions(), "DEFAULT")


cpu = _Processor("cpu")
mps, mkl, mkldnn, openmp, opt_einsum = (
    _Switches(name, enabled=False) for name in ("mps", "mkl", "mkldnn", "openmp", "opt_einsum")
)
sys.modules.update({m.__name__: m for m in (cudnn, cuda, cpu, mps, mkl, mkldnn, openmp, opt_einsum)})
