"""Reads the pickles of checkpoints: as data alone, or, for files that are trusted, with all that pickles can do."""

from __future__ import annotations

import collections
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from plait._errors import CheckpointError, damage
from plait._serialization.allowed_classes import REFUSED, allowed
from plait._serialization.pickling import ALLOWED, Allowed, _numpy_data, checked_key, pairs, shown, value_of

_MARK = object()

_LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class DataUnpickler:
    """Reads a pickle of numbers, strings, containers and tensors, and of what `add_safe_globals` allows.

    Every other name in it is an error. It runs the pickle's instructions itself: only what `_pickling.ALLOWED` lists,
    and what the program allows, is ever called, and only objects that the pickle made are ever changed.
    """

    def __init__(self, storage: Callable[[Any], Any]) -> None:
        """Takes the function that returns the storage with a persistent id."""
        self._storage = storage

    def load(self, data: bytes) -> Any:
        """Returns the object of a pickle.

        Raises:
            CheckpointError: for a name that is not allowed, and for a damaged pickle.
        """
        import pickletools  # slow to import, and few programs read such files

        self._allowed = allowed()
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        with damage("its pickle"):
            for op, arg, _ in pickletools.genops(data):
                if op.name == "STOP":
                    (value,) = self._stack
                    return value
                self._step(op.name, arg)
        raise CheckpointError("its pickle ends too early")

    def _step(self, name: str, arg: Any) -> None:
        stack = self._stack
        if name in _LITERALS:
            stack.append(arg)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[arg] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[arg])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            n = _TUPLES[name]
            stack[-n:] = [tuple(self._top(n))]
        elif name == "TUPLE":
            stack.append(tuple(self._marked()))
        elif name == "LIST":
            stack.append(self._marked())
        elif name == "DICT":
            stack.append(_pairs(self._marked()))
        elif name == "FROZENSET":
            stack.append(frozenset(map(checked_key, self._marked())))
        elif name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS"):
            self._fill(name)
        elif name == "GLOBAL":
            module, _, attribute = arg.partition(" ")
            stack.append(_checked_name(self._allowed, module, attribute))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_checked_name(self._allowed, str(module), str(attribute)))
        elif name == "REDUCE":
            args, made = stack.pop(), stack.pop()
            run = made.run if isinstance(made, Allowed) else self._allowed_itself(made)
            if run is None or not isinstance(args, tuple):
                raise CheckpointError(f"it calls {shown(made)}, which is not allowed")
            stack.append(run(*args))
        elif name in ("NEWOBJ", "NEWOBJ_EX"):
            kwargs = stack.pop() if name == "NEWOBJ_EX" else {}
            args, made = stack.pop(), stack.pop()
            if not isinstance(self._allowed_itself(made), type):
                raise CheckpointError(f"it makes a new {shown(made)}, which is not allowed")
            stack.append(made.__new__(made, *args, **kwargs))
        elif name == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1] = self._built(stack[-1], state)
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._marked()
        elif name not in ("PROTO", "FRAME"):
            raise CheckpointError(f"its pickle has the instruction {name}, which is not allowed")

    def _allowed_itself(self, value: Any) -> Any:
        """Returns a class or function if the program allows it, else None."""
        return value if any(value is a for a in self._allowed.values()) else None

    def _top(self, n: int) -> list[Any]:
        if len(self._stack) < n or any(v is _MARK for v in self._stack[-n:]):
            raise IndexError("nothing there")
        return self._stack[-n:]

    def _marked(self) -> list[Any]:
        """Returns what lies above the last mark, and takes it off."""
        stack = self._stack
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is _MARK:
                values = stack[i + 1 :]
                del stack[i:]
                return values
        raise IndexError("no mark")

    def _fill(self, name: str) -> None:
        if name.endswith("S"):
            values = self._marked()
        else:
            n = 1 if name == "APPEND" else 2
            values = self._top(n)
            del self._stack[-n:]
        into = self._stack[-1]
        if name.startswith("APPEND") and type(into) is list:
            into.extend(values)
        elif name == "ADDITEMS" and type(into) is set:
            into.update(map(checked_key, values))
        elif name.startswith("SETITEM") and isinstance(into, dict):
            into.update(_pairs(values))
        else:
            raise TypeError(f"{name} on {type(into).__name__}")

    def _built(self, value: Any, state: Any) -> Any:
        """Gives an object its state, where objects of checkpoints have one."""
        if isinstance(value, collections.OrderedDict) and isinstance(state, dict):
            if "_metadata" in state:  # the versions of modules, in a state dict
                value._metadata = state["_metadata"]  # type: ignore[attr-defined]
            return value
        if isinstance(value, np.dtype) and isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", "|", "="):
            return value
        if isinstance(value, np.ndarray) and isinstance(state, tuple) and len(state) == 5:
            _, shape, dtype, columns, data = state
            filled = _numpy_data(dtype, shape, data, "F" if columns else "C")
            for key, known in self._memo.items():
                if known is value:
                    self._memo[key] = filled
            return filled
        if self._allowed_itself(type(value)) is not None:
            return _with_own_state(value, state)
        raise CheckpointError(f"it sets the state of a {type(value).__name__}, which is not allowed")


def _checked_name(allowed: dict[str, Any], module: str, name: str) -> Any:
    """Returns what a name stands for: what it is in every checkpoint, or what the program allows by it."""
    own = allowed.get(f"{module}.{name}")
    if own is None or (module, name) in ALLOWED or module.partition(".")[0] in REFUSED:
        return value_of(module, name)
    return own


def _with_own_state(value: Any, state: Any) -> Any:
    """Gives an object its state as pickle does."""
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
        return value
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    vars(value).update(attributes) if attributes else None
    for name, kept in (slots or {}).items():
        setattr(value, name, kept)
    return value


def _pairs(values: list[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise ValueError("a key without a value")
    return pairs(zip(values[::2], values[1::2], strict=True))


def refused_names(data: bytes) -> list[str]:
    """Returns the names in a pickle that `DataUnpickler` refuses, each once, sorted."""
    import pickletools

    known, found = allowed(), set()
    texts: list[str] = []
    with damage("its pickle"):
        for op, arg, _ in pickletools.genops(data):
            if "UNICODE" in op.name:
                texts.append(str(arg))
            elif op.name in ("GLOBAL", "STACK_GLOBAL"):
                # The two texts before a name from the stack are its parts.
                module, name = str(arg).split(" ", 1) if op.name == "GLOBAL" else texts[-2:]
                try:
                    _checked_name(known, module, name)
                except CheckpointError:
                    found.add(f"{module}.{name}")
    return sorted(found)


class _ObjectUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, storage: Callable[[Any], Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._storage = storage

    def persistent_load(self, pid: Any) -> Any:
        return self._storage(pid)

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "torch":
            if name == "_rebuild_from_type_v2":
                return _with_state
            found = value_of(module, name, trusted=True)
            return found.run if isinstance(found, Allowed) else found
        return super().find_class(module, name)


def _with_state(make: Callable[..., Any], _kind: Any, args: Any, state: Any) -> Any:
    made = make(*args)
    if isinstance(state, dict):
        made.__dict__.update(state)
    return made


def load_objects(data: bytes, storage: Callable[[Any], Any]) -> Any:
    """Returns the object of a pickle that may name, and so run, anything."""
    return _ObjectUnpickler(data, storage).load()


__all__ = ["ALLOWED", "DataUnpickler", "load_objects"]
