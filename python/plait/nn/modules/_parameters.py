"""Lists and dictionaries of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plait._tensor import Tensor
from plait.nn.modules.container import _place
from plait.nn.modules.module import Module, describe
from plait.nn.parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(key: Any, value: Any) -> str:
    if isinstance(value, Tensor):
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        return f"({key}): {kind} containing: [{value.dtype} of size {'x'.join(map(str, value.shape))}]"
    return f"({key}): Object of type: {type(value).__name__}"


class ParameterList(Module):
    """A list of parameters; tensors become such, other values are kept as they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, str(i)) for i in range(self._size)])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, str(_place("ParameterList", index, self._size)))

    def __setitem__(self, index: Any, value: Any) -> None:
        setattr(self, str(_place("ParameterList", index, self._size)), _as_parameter(value))

    def append(self, value: Any) -> ParameterList:
        """Adds a value at the end and returns self."""
        setattr(self, str(self._size), _as_parameter(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds values at the end and returns self."""
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise TypeError(f"ParameterList.extend: want an iterable, got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def pop(self, index: int = -1) -> Any:
        """Removes the value with an index, the last by default, and returns it."""
        values = list(self)
        value = values.pop(index)
        for i in range(self._size):
            delattr(self, str(i))
        self._size = 0
        self.extend(values)
        return value

    def __repr__(self) -> str:
        return describe("ParameterList", "", [_line(i, v) for i, v in enumerate(self)])


class ParameterDict(Module):
    """A dictionary of parameters; tensors become such, other values are kept as they are."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"ParameterDict: keys must be strings, got {type(key).__name__}")
        if key not in self._keys and hasattr(type(self), key):
            raise KeyError(f"ParameterDict: {key!r} is the name of a method")
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Any:
        """Returns the keys."""
        return self._keys.keys()

    def values(self) -> Any:
        """Returns the values."""
        return [self[k] for k in self._keys]

    def items(self) -> Any:
        """Returns the keys with their values."""
        return [(k, self[k]) for k in self._keys]

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, or default."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, which is first set to default if it is not there."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Removes a key and returns its value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes the last key and returns it with its value."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def clear(self) -> None:
        """Removes all keys."""
        for key in list(self._keys):
            del self[key]

    def copy(self) -> ParameterDict:
        """Returns another dictionary of the same parameters."""
        return ParameterDict(self.items())

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Returns a dictionary with the keys, all with one value."""
        return ParameterDict((k, default) for k in keys)

    def update(self, parameters: Any) -> None:
        """Adds the values of a mapping, or of pairs of a key and a value."""
        if not isinstance(parameters, Iterable):
            raise TypeError(f"ParameterDict.update: want a mapping or pairs, got {type(parameters).__name__}")
        pairs = parameters.items() if isinstance(parameters, Mapping | ParameterDict) else parameters
        for pair in pairs:
            key, value = pair
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return describe("ParameterDict", "", [_line(k, v) for k, v in self.items()])
