"""Plait is a deep-learning engine with PyTorch's names that trains one model on one device or many.

The devices are CPUs, NVIDIA GPUs through CUDA, and other GPUs through Vulkan or Metal.

Names, arguments and behaviour are PyTorch's: a training script is ported by changing its imports.
"""

from math import e, inf, nan, pi
from typing import Any as _Any

from plait import _start, accelerator, backends, cpu, cuda, fft, linalg, return_types, special, version
from plait._device import device, get_default_device, set_default_device
from plait._dtype import ABSENT as _ABSENT_DTYPES
from plait._dtype import (
    bfloat16,
    can_cast,
    complex64,
    complex128,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from plait._dtype import bool_ as bool  # noqa: A004
from plait._dtype import complex64 as cfloat
from plait._dtype import complex128 as cdouble
from plait._engine import blas as _blas
from plait._engine import cuda as _cuda
from plait._engine.missing_names import absent as _absent
from plait._errors import CheckpointError, DeviceError, DistributedError, MissingFeatureError, OutOfMemoryError
from plait._event import Event as Event
from plait._functions.public import *
from plait._layout import Layout as layout  # noqa: N813
from plait._layout import MemoryFormat as memory_format  # noqa: N813
from plait._layout import (
    Size,
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from plait._modes import (
    enable_grad,
    inference_mode,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from plait._random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from plait._tensor import Tensor
from plait._tensors.arrays import as_tensor, asarray, from_numpy, tensor
from plait._tensors.dlpack import from_dlpack
from plait._tensors.repr import set_printoptions
from plait._tensors.sparse_class import sparse_compressed_tensor, sparse_coo_tensor, sparse_csr_tensor
from plait._tensors.sparse_columns import sparse_csc_tensor as sparse_csc_tensor
from plait._version import __version__
from plait.cuda.streams import Stream as Stream
from plait.serialization import load, save

float = float32
double = float64
half = float16
long = int64
int = int32
short = int16
newaxis = None


# At the end: they are made of the names above.
import plait.cpu.amp  # noqa: E402
import plait.cuda.amp  # noqa: E402
from plait import amp as amp  # noqa: E402
from plait import func as func  # noqa: E402
from plait import profiler as profiler  # noqa: E402
from plait._functions.counts import *  # noqa: E402
from plait._functions.layers import *  # noqa: E402
from plait._functions.segments import *  # noqa: E402
from plait.amp.autocast_mode import *  # noqa: E402
from plait.func import vmap as vmap  # noqa: E402
from plait.utils.summary import summary as summary  # noqa: E402


def __getattr__(name: str) -> _Any:
    """Imports a submodule at its first use; other names are missing."""
    if name in (
        "array_api", "autograd", "compiler", "distributed", "distributions", "futures", "fx", "hub", "jit", "library",
        "multiprocessing", "nn", "onnx", "ops", "optim", "overrides", "plot", "quasirandom", "random", "sparse",
        "storage", "testing", "types",
    ):  # fmt: skip
        import importlib

        return importlib.import_module(f"plait.{name}")
    if name == "DataParallel":
        from plait.nn.parallel import DataParallel

        return DataParallel
    if name == "Pipeline":
        from plait.distributed.pipelining import Pipeline

        return Pipeline
    if name == "parallelize":
        from plait.distributed.parallel import parallelize

        return parallelize
    if name in ("FSDP", "fully_shard"):
        from plait.distributed import fsdp

        return getattr(fsdp, name)
    if name.startswith("_foreach_"):
        from plait._functions.foreach import foreach

        if (function := foreach(name.removeprefix("_foreach_"))) is not None:
            return function
    if name == "Future":
        from plait.futures import Future

        return Future
    if name == "_standard_gamma":
        from plait.distributions._samplers import standard_gamma

        return standard_gamma
    if name in ("TypedStorage", "UntypedStorage"):
        from plait import storage

        return getattr(storage, name)
    if name.endswith("Tensor"):
        from plait._tensors.legacy_types import TYPES

        if name in TYPES:
            return TYPES[name]
    if name in (
        "_assert",
        "_assert_async",
        "_check",
        "_check_index",
        "_check_not_implemented",
        "_check_type",
        "_check_value",
        "_check_with",
    ):
        from plait._functions import checks

        return getattr(checks, name)
    if name in ("_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo"):
        from plait._functions import sparse_indices

        return getattr(sparse_indices, name)
    if name in _ABSENT_DTYPES:
        return _ABSENT_DTYPES[name]
    raise _absent("top", "plait", name)
