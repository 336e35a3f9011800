"""The modules of PyTorch's that are none of Plait's, from `torch` itself to `torch.__config__`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import plait
import plait._tensors.shared  # multiprocessing shares tensors where torch is imported
import plait.jit
from plait import _core
from plait._autograd import batch
from plait._engine import arming
from plait._engine.missing_names import Refused, absent
from plait.func import _transform as transform
from plait.nn.modules.module import parse_to

VERSION = "2.15.0"  # of PyTorch, whose names and behaviour these are


def _numbers(version: Any) -> list[int]:
    """Returns the numbers that a version, text or a tuple, begins with, without zeros at the end."""
    text = ".".join(map(str, version)) if isinstance(version, tuple | list) else str(version)
    out = [int(n) for n in re.findall(r"\d+", re.match(r"[\d.]*", text)[0])]  # type: ignore[index]
    while out and not out[-1]:
        out.pop()
    return out


def _comparison(compare: Callable[[Any, Any], bool]) -> Any:
    return lambda self, other: compare(_numbers(self), _numbers(other))


class TorchVersion(str):
    """A version that is compared by its numbers, with text and with tuples."""

    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)
    __eq__, __ne__ = _comparison(operator.eq), _comparison(operator.ne)
    __hash__ = str.__hash__


class _Keys:
    """PyTorch's keys of dispatch, which torchvision names when it is imported: each is its name."""

    def __getattr__(self, name: str) -> str:
        return name


BINDINGS = {
    "DisableTorchFunction": arming.DisableTorchFunction,
    "DisableTorchFunctionSubclass": arming.DisableTorchFunctionSubclass,
    "DispatchKey": _Keys(),
    "DispatchKeySet": lambda key: frozenset({key}),
    "_TensorMeta": type(plait.Tensor),
    "_are_functorch_transforms_active": transform.active,
    "_disabled_torch_function_impl": arming.disabled_torch_function,
    "_get_default_device": lambda: plait.get_default_device().type,
    "_get_tracing_state": lambda: None,
    "_log_api_usage_once": lambda *args: None,
}


def _built() -> str:
    """Returns Plait's version and what multiplies matrices."""
    return f"Plait {plait.__version__}\n  - matrix products: {_core.bind_BlasDescribe()}\n"


# Classes that libraries name when they are imported, or ask of what they get: why they cannot be used.
REFUSED = {
    "PyTorchFileReader": "a file's records are not read one by one; use torch.load",
    "SymBool": "sizes are numbers",
    "SymFloat": "sizes are numbers",
    "SymInt": "sizes are numbers",
    "TensorType": "there are no types of PyTorch's compiler; torch.Tensor is the class of tensors",
}


def _of_operations(name: str) -> Any:
    if name in ("OpOverload", "OpOverloadPacket"):
        from plait._dispatch import operations  # which most programs do without

        return getattr(operations, name)
    raise AttributeError(f"torch._ops has no attribute {name!r}")


def modules(submodule: Callable[[str], Any]) -> dict[str, ModuleType]:
    """Returns the modules by name.

    Args:
        submodule: imports a module below torch, or returns None if there is no such
    """
    made = ("torch", "torch._C", "torch._C._functorch", "torch._C._nn", "torch.version")
    top, bindings, functions, layers, version = (ModuleType(n, plait.__doc__) for n in made)
    names = {k: v for k, v in vars(plait).items() if k[0] != "_" and not isinstance(v, ModuleType)}
    vars(top).update(names, __version__=TorchVersion(VERSION), __file__=plait.__file__, __path__=[])
    for name, why in REFUSED.items():
        vars(top)[name] = Refused(name, (), {"_why": f"torch.{name}: {why}", "__module__": "torch"})
    vars(top).update(ScriptFunction=plait.jit.ScriptFunction, ScriptModule=plait.jit.ScriptModule)
    vars(top)["torch"] = top  # some libraries write torch.torch.Tensor

    def missing(name: str) -> Any:
        """Imports a module below at its first use; other names are Plait's, or it has an error for them."""
        try:
            value = getattr(plait, name)
        except AttributeError:
            if name[:2] == "__" or (value := submodule(name)) is None:
                raise
        if isinstance(value, ModuleType) and (value := submodule(name)) is None:
            raise absent("top", "torch", name)
        setattr(top, name, value)
        return value

    top.__getattr__ = missing  # type: ignore[method-assign]
    vars(bindings).update(BINDINGS, __path__=[], _functorch=functions, _nn=layers)
    vars(version).update({k: v for k, v in vars(plait.version).items() if k[0] != "_"})
    vars(version).update(__version__=top.__version__, plait=plait.__version__)
    config = ModuleType("torch.__config__", "How Plait was built.")
    vars(config).update(show=_built, parallel_info=lambda: f"at most {plait.get_num_threads()} threads")
    vars(top)["__config__"] = config
    vars(functions).update(
        is_batchedtensor=lambda t: batch.depth(t) > 0,
        is_legacy_batchedtensor=lambda t: False,  # gradients of a batch have a level of vmap's
    )
    vars(layers).update(_parse_to=parse_to)
    versions, operators = ModuleType("torch.torch_version"), ModuleType("torch._custom_ops")
    operations = ModuleType("torch._ops", "The classes of operations by PyTorch's inner names.")
    operations.__getattr__ = _of_operations  # type: ignore[method-assign]
    vars(versions).update(TorchVersion=TorchVersion, __version__=top.__version__)
    made_here = (top, bindings, functions, layers, version, versions, config, operators, operations)
    return {m.__name__: m for m in made_here}
