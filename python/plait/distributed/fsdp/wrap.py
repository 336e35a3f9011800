"""Wrapping policies: which submodules become FSDP units."""

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
    """Makes every submodule a unit."""
    return True


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Makes a unit of a module with many parameter elements that are in no inner unit.

    Args:
        module: the module
        recurse: True asks whether to visit the module's children, False whether the module is a unit
        nonwrapped_numel: the number of parameter elements that are in no inner unit
        min_num_params: the number of elements that makes a unit
        force_leaf_modules: classes whose children are not visited; `nn.MultiheadAttention` by default
        exclude_wrap_modules: classes that never become units; `nn.ModuleList` and `nn.ModuleDict` by default
    """
    leaves = force_leaf_modules if force_leaf_modules is not None else {nn.MultiheadAttention}
    excluded = exclude_wrap_modules if exclude_wrap_modules is not None else {nn.ModuleList, nn.ModuleDict}
    large = nonwrapped_numel >= min_num_params
    return large and not isinstance(module, tuple(leaves if recurse else excluded))


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[Module]]
) -> bool:
    """Makes units of the modules of the given classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Makes units of the modules for which a function returns True."""
    return recurse or bool(lambda_fn(module))


class ModuleWrapPolicy:
    """Makes units of the modules of the given classes."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        """Returns True with `recurse`, otherwise whether the module is a unit."""
        return recurse or isinstance(module, self._classes)


class CustomPolicy:
    """Makes units of the modules for which a function returns True, or a dict of options for the unit."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._function = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> Any:
        """Returns True with `recurse`, otherwise what the function returns."""
        return True if recurse else self._function(module)


class _Wrapping(threading.local):
    """The wrapper classes and arguments of the calling thread's `enable_wrap` contexts, the innermost last."""

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
    """Wraps a module inside `enable_wrap`. Elsewhere it returns the module itself."""
    if not _wrapping.units:
        return module
    cls, given = _wrapping.units[-1]
    return cls(module, **{**given, **kwargs})


def as_policy(policy: Any) -> Callable[[Module, bool, int], Any]:
    """Converts a policy, or a list of classes, to a function of module, recurse and nonwrapped_numel."""
    if isinstance(policy, Iterable) and not callable(policy):
        policy = ModuleWrapPolicy(policy)
    if not callable(policy):
        raise TypeError(f"auto_wrap_policy: want a function or a policy, got {type(policy).__name__}")
    plain = policy.func if isinstance(policy, functools.partial) else policy
    if plain in (size_based_auto_wrap_policy, transformer_auto_wrap_policy, lambda_auto_wrap_policy):
        return lambda m, recurse, n: policy(module=m, recurse=recurse, nonwrapped_numel=n)
    return policy  # type: ignore[no-any-return]
