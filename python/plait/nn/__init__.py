"""Neural networks: modules, parameters, and the functions that they are made of."""

from plait._engine.missing_names import absent as _absent
from plait.nn import functional as functional
from plait.nn import init as init
from plait.nn import utils as utils
from plait.nn.modules import *
from plait.nn.parameter import Buffer as Buffer
from plait.nn.parameter import Parameter as Parameter
from plait.nn.parameter import UninitializedBuffer as UninitializedBuffer
from plait.nn.parameter import UninitializedParameter as UninitializedParameter


def __getattr__(name: str) -> object:
    if name in ("parallel", "DataParallel"):  # ranks and devices are only needed by those who use several
        import importlib

        parallel = importlib.import_module("plait.nn.parallel")
        return parallel if name == "parallel" else parallel.DataParallel
    if name == "attention":
        import importlib

        return importlib.import_module("plait.nn.attention")
    raise _absent("nn", "plait.nn", name)
