"""The array API standard, 2023.12: its names, arguments and results over plait's tensors.

`x.__array_namespace__()` returns this module, for code that is written for any array library. Where the standard and
PyTorch give one name to two things, as `max` or `sort`, this module has the standard's; docs/array_api.md says what is
not there.
"""

# ruff: noqa: A004
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi

from plait import abs as abs
from plait import acos as acos
from plait import acosh as acosh
from plait import asin as asin
from plait import asinh as asinh
from plait import atan as atan
from plait import atanh as atanh
from plait import bitwise_not as _bitwise_not
from plait import bool as bool
from plait import ceil as ceil
from plait import complex64 as complex64
from plait import complex128 as complex128
from plait import conj as conj
from plait import cos as cos
from plait import cosh as cosh
from plait import exp as exp
from plait import expm1 as expm1
from plait import float32 as float32
from plait import float64 as float64
from plait import floor as floor
from plait import from_dlpack as from_dlpack
from plait import imag as imag
from plait import int8 as int8
from plait import int16 as int16
from plait import int32 as int32
from plait import int64 as int64
from plait import isfinite as isfinite
from plait import isinf as isinf
from plait import isnan as isnan
from plait import log as log
from plait import log1p as log1p
from plait import log2 as log2
from plait import log10 as log10
from plait import logical_not as logical_not
from plait import negative as negative
from plait import newaxis as newaxis
from plait import positive as positive
from plait import real as real
from plait import round as round
from plait import signbit as signbit
from plait import sin as sin
from plait import sinh as sinh
from plait import sqrt as sqrt
from plait import square as square
from plait import tan as tan
from plait import tanh as tanh
from plait import trunc as trunc
from plait import uint8 as uint8
from plait import uint16 as uint16
from plait import uint32 as uint32
from plait import uint64 as uint64
from plait._public import publish as _publish
from plait._tensor import Tensor as _Tensor
from plait.array_api import fft as fft
from plait.array_api import linalg as linalg
from plait.array_api._arrays import *
from plait.array_api._creation import *
from plait.array_api._elementwise import *
from plait.array_api._types import *
from plait.array_api.linalg import matrix_transpose as matrix_transpose
from plait.array_api.linalg import tensordot as tensordot
from plait.array_api.linalg import vecdot as vecdot

__array_api_version__ = "2023.12"
Array = _Tensor
bitwise_invert = _bitwise_not

_publish(globals(), "__array_api_version__", "__array_namespace_info__", "fft", "linalg")
