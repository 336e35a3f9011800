"""Modules that hold others."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from plait.nn.modules.module import Module, _indent, describe

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


def _place(name: str, index: Any, length: int) -> int:
    """Returns an index, counted from the end if negative, as one from the start."""
    i = operator.index(index)
    if not -length <= i < length:
        raise IndexError(f"{name}: index {i} is out of range for {length} entries")
    return i % length


class _Numbered(Module):
    """Children under the names 0, 1, ..."""

    def _renumber(self, modules: Iterable[Module | None]) -> None:
        self._modules = OrderedDict((str(i), m) for i, m in enumerate(modules))

    def __getitem__(self, index: Any) -> Any:
        modules = list(self._modules.values())
        if isinstance(index, slice):
            return self._of(index)
        return modules[_place(self._get_name(), index, len(modules))]

    def _of(self, index: slice) -> Any:
        return type(self)(list(self._modules.values())[index])  # type: ignore[arg-type]

    def __setitem__(self, index: Any, module: Module) -> None:
        name = list(self._modules)[_place(self._get_name(), index, len(self))]
        setattr(self, name, module)

    def __delitem__(self, index: Any) -> None:
        modules = list(self._modules.values())
        if isinstance(index, slice):
            del modules[index]
        else:
            del modules[_place(self._get_name(), index, len(modules))]
        self._renumber(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Any:
        """Adds a module at the end and returns self."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Adds a module before the one with an index and returns self."""
        if not isinstance(module, Module):
            raise TypeError(f"insert: want a Module, got {type(module).__name__}")
        modules = list(self._modules.values())
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"{self._get_name()}: index {index} is out of range for {len(modules)} entries")
        modules.insert(index + len(modules) if index < 0 else index, module)
        self._renumber(modules)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Adds modules at the end and returns self."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"extend: want an iterable of modules, got {type(modules).__name__}")
        for m in list(modules):
            self.append(m)
        return self

    def pop(self, key: Any = -1) -> Module:
        """Removes the module with an index, the last by default, and returns it."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Numbered):
    """Calls modules one after the other, each with the output of the one before.

    Args:
        args: the modules, or an ordered mapping of names to them
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def extend(self, sequential: Iterable[Module]) -> Any:
        """Adds modules at the end and returns self."""
        return super().extend(sequential)

    def _of(self, index: slice) -> Any:
        return type(self)(OrderedDict(list(self._modules.items())[index]))

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)
        gone = names[index] if isinstance(index, slice) else [names[_place(self._get_name(), index, len(names))]]
        for name in gone:
            del self._modules[name]
        if all(n.isdigit() for n in names):
            self._renumber(list(self._modules.values()))

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"Sequential: can only be added to another, got {type(other).__name__}")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"Sequential: can only be added to another, got {type(other).__name__}")
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        if not isinstance(times, int):
            raise TypeError(f"Sequential: want an int to multiply by, got {type(times).__name__}")
        if times <= 0:
            raise ValueError(f"Sequential: want a positive number to multiply by, got {times}")
        return Sequential(*(m for _ in range(times) for m in self))

    __rmul__ = __mul__

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input


class ModuleList(_Numbered):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        lines: list[str] = []
        run: list[int] = []
        shown = [repr(m) for m in self]
        for i, text in enumerate(shown):
            run.append(i)
            if i + 1 == len(shown) or shown[i + 1] != text:
                many = f"({run[0]}-{i}): {len(run)} x {text}" if len(run) > 1 else f"({i}): {text}"
                lines.append(_indent(many))
                run = []
        return describe(self._get_name(), "", lines)


class ModuleDict(Module):
    """A dictionary of modules."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Removes the module with a key and returns it."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """Returns the keys."""
        return self._modules.keys()

    def items(self) -> Any:
        """Returns the keys with their modules."""
        return self._modules.items()

    def values(self) -> Any:
        """Returns the modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Adds the modules of a mapping, or of pairs of a key and a module."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleDict.update: want a mapping or pairs, got {type(modules).__name__}")
        pairs = modules.items() if isinstance(modules, Mapping | ModuleDict) else modules
        for pair in pairs:
            if not isinstance(pair, Iterable) or len(pair := tuple(pair)) != 2:
                raise ValueError(f"ModuleDict.update: want pairs of a key and a module, got {pair!r}")
            self[pair[0]] = pair[1]
