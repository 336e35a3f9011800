"""Which parts of a model become units of their own."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from plait import nn
from plait.nn.modules.module import Module

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Makes every module a unit."""
    return True


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Makes units of modules with many elements in parameters that no smaller unit has.

    Args:
        module: the module
        recurse: whether to look into the module, in the place of whether it is a unit
        nonwrapped_numel: elements in its parameters that no unit has
        min_num_params: how many make a unit
        force_leaf_modules: classes that are not looked into; nn.MultiheadAttention by default
        exclude_wrap_modules: classes that are no units; lists and dicts of modules by default
    """
    leaves = force_leaf_modules if force_leaf_modules is not None else {nn.MultiheadAttention}
    excluded = exclude_wrap_modules if exclude_wrap_modules is not None else {nn.ModuleList, nn.ModuleDict}
    large = nonwrapped_numel >= min_num_params
    return large and not isinstance(module, tuple(leaves if recurse else excluded))


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[Module]]
) -> bool:
    """Makes units of the modules of some classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Makes units of the modules for which a function says so."""
    return recurse or bool(lambda_fn(module))


class ModuleWrapPolicy:
    """Makes units of the modules of some classes."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        """Returns whether to look into the module, or whether it is a unit."""
        return recurse or isinstance(module, self._classes)


class CustomPolicy:
    """Makes units of the modules for which a function returns True or a dict of arguments that differ for the unit."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._function = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> Any:
        """Returns whether to look into the module, or what the function says."""
        return True if recurse else self._function(module)


class _Wrapping(threading.local):
    """The classes, with their arguments, of the `enable_wrap` that the calling thread is in, the innermost last."""

    def __init__(self) -> None:
        self.units: list[tuple[Callable[..., Any], dict[str, Any]]] = []


_wrapping = _Wrapping()


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., Any], **kwargs: Any) -> Iterator[None]:
    """Inside, `wrap(module)` is `wrapper_cls(module, **kwargs)`."""
    _wrapping.units.append((wrapper_cls, kwargs))
    try:
        yield
    finally:
        _wrapping.units.pop()


def wrap(module: Module, **kwargs: Any) -> Any:
    """Returns the module, inside `enable_wrap` made a unit."""
    if not _wrapping.units:
        return module
    cls, given = _wrapping.units[-1]
    return cls(module, **{**given, **kwargs})


def as_policy(policy: Any) -> Callable[[Module, bool, int], Any]:
    """Returns a policy as a function of a module, whether to look into it, and the elements that no unit has."""
    if isinstance(policy, Iterable) and not callable(policy):
        policy = ModuleWrapPolicy(policy)
    if not callable(policy):
        raise TypeError(f"auto_wrap_policy: want a function or a policy, got {type(policy).__name__}")
    plain = policy.func if isinstance(policy, functools.partial) else policy
    if plain in (size_based_auto_wrap_policy, transformer_auto_wrap_policy, lambda_auto_wrap_policy):
        return lambda m, recurse, n: policy(module=m, recurse=recurse, nonwrapped_numel=n)
    return policy  # type: ignore[no-any-return]
