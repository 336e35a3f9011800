"""Parametrizations: parameters that are functions of others."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn.modules.container import ModuleDict, ModuleList
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter, adopt


class _Cache(threading.local):
    """What the calling thread, a rank perhaps, has computed inside `cached`."""

    depth = 0

    def __init__(self) -> None:
        self.values: dict[ParametrizationList, Tensor] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Computes each parametrized tensor at most once inside `with`, and again after it was assigned to."""
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


class ParametrizationList(ModuleList):
    """The functions that a parametrized tensor goes through, and the tensors that they begin with.

    Args:
        modules: the functions, the first one first
        original: the tensor
        unsafe: do not check that shape and dtype stay
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("parametrize: want at least one module")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        value: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
        if not isinstance(value, Tensor | Sequence):
            raise ValueError(
                f"parametrize: right_inverse must return a tensor or a sequence of them, got {type(value).__name__}"
            )
        self.is_tensor = isinstance(value, Tensor)
        if isinstance(value, Tensor):
            if not unsafe and value.dtype is not dtype:
                raise ValueError(f"parametrize: right_inverse changes the dtype from {dtype} to {value.dtype}")
            self._own("original", original, value)
        else:
            self.ntensors = len(value)
            for i, v in enumerate(value):
                self._own(f"original{i}", original, v)
        if not unsafe:
            made = self()
            if not isinstance(made, Tensor):
                raise ValueError(f"parametrize: forward must return a tensor, got {type(made).__name__}")
            if made.dtype is not dtype or made.shape != shape:
                raise ValueError(
                    f"parametrize: the tensor changes from {dtype} {list(shape)} to {made.dtype} {list(made.shape)}; "
                    "unsafe=True allows that"
                )

    def _own(self, name: str, original: Tensor, value: Tensor) -> None:
        if isinstance(original, Parameter):
            same = value is original
            self.register_parameter(name, original if same else Parameter(value.detach(), original.requires_grad))
        else:
            self.register_buffer(name, value)

    def originals(self) -> list[Tensor]:
        """Returns the tensors that the functions begin with."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Sets the tensors that the functions begin with so that the last returns `value`."""
        result: Any = value
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrize: {type(module).__name__} has no right_inverse, so the tensor cannot be assigned"
                )
            result = module.right_inverse(result)
        results = [result] if self.is_tensor else list(result)
        for mine, new in zip(self.originals(), results, strict=True):
            if mine.shape == new.shape and mine.dtype is new.dtype:
                mine.copy_(new)
            else:
                adopt(mine, new)

    def forward(self) -> Tensor:
        """Returns the parametrized tensor."""
        if not len(self):
            raise RuntimeError("parametrize: there is no module left")
        first, *rest = list(self)
        value = first(*self.originals())
        for module in rest:
            value = module(value)
        return value


def _property(name: str) -> property:
    def get(self: Any) -> Tensor:
        functions = self.__dict__["_modules"]["parametrizations"][name]
        if not _cache.depth:
            return functions()
        if functions not in _cache.values:
            _cache.values[functions] = functions()
        return _cache.values[functions]

    def put(self: Any, value: Tensor) -> None:
        functions = self.__dict__["_modules"]["parametrizations"][name]
        functions.right_inverse(value)
        _cache.values.pop(functions, None)

    return property(get, put)


def _parametrized_class(module: Module) -> None:
    cls = type(module)

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def reduced(self: Any) -> Any:
        raise RuntimeError("parametrize: a parametrized module cannot be pickled; save its state_dict")

    def setattr_(self: Any, name: str, value: Any) -> None:
        # Properties come before the registration of parameters.
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            cls.__setattr__(self, name, value)

    space = {"__deepcopy__": copied, "__getstate__": reduced, "__setattr__": setattr_}
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), space)
    module.parametrizations = ModuleDict()


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes a parameter or buffer the result of a module, which is called with it, and returns the module.

    Args:
        module: whose tensor it is
        tensor_name: its name
        parametrization: the function; its `right_inverse`, if there is one, says what it begins with
        unsafe: do not check that shape and dtype stay
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        table = module.parametrizations[tensor_name]
        if not unsafe:
            made = parametrization(getattr(module, tensor_name))
            now = getattr(module, tensor_name)
            if made.shape != now.shape or made.dtype is not now.dtype:
                raise ValueError(
                    f"parametrize: {tensor_name} changes from {now.dtype} {list(now.shape)} "
                    f"to {made.dtype} {list(made.shape)}; unsafe=True allows that"
                )
        if hasattr(parametrization, "right_inverse"):
            with no_grad():
                value = parametrization.right_inverse(getattr(module, tensor_name))
            table.right_inverse(value)
        table.append(parametrization)
        table.unsafe = table.unsafe or unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"parametrize: {type(module).__name__} has no parameter or buffer {tensor_name!r}")
    original = getattr(module, tensor_name)
    table = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _parametrized_class(module)
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = table
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrized tensors, or one of a given name."""
    table = module._modules.get("parametrizations")
    if not isinstance(table, ModuleDict):
        return False
    return len(table) > 0 if tensor_name is None else tensor_name in table


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a tensor an ordinary one again, with the values that it has or, if asked, those it began with."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"parametrize: {type(module).__name__} has no parametrized {tensor_name!r}")
    table = module.parametrizations[tensor_name]
    first = table.originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach().clone()
        trained = any(isinstance(t, Parameter) for t in table.originals())
        requires_grad = any(t.requires_grad for t in table.originals())
        kept: Tensor = Parameter(value, requires_grad) if trained else value
    elif not table.is_tensor:
        raise ValueError("parametrize: leave_parametrized=False wants a parametrization that begins with one tensor")
    else:
        kept = first
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(kept, Parameter):
        module.register_parameter(tensor_name, kept)
    else:
        module.register_buffer(tensor_name, kept)
    if not is_parametrized(module):
        del module._modules["parametrizations"]
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Returns the class that a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrizes a module's tensors as another's are, with copies, and returns it."""
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for p in source:
            register_parametrization(to_module, name, copy.deepcopy(p), unsafe=source.unsafe)
        with no_grad():
            for mine, its in zip(to_module.parametrizations[name].originals(), source.originals(), strict=True):
                mine.copy_(its)
    return to_module
