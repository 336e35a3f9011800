"""Tensors of derived classes, and modes, that override functions, or the operations below them.

Functions look for neither: ordinary programs must not pay for that. The first tensor whose class overrides functions,
and the first mode, arm them: each function's code becomes one that looks, and calls what the function was. The function
itself stays the same object, whoever holds it. Operators and properties of a class that overrides are its own; those of
`Tensor` change while a thread is in a mode.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from plait import _core
from plait._engine import overriding
from plait._engine.overriding import DISPATCHING, LOWER, OVERRIDING, PLAIN, AMode, disabled, found_in, handle, state

_Tensor = _core.TensorOwner
_lock = threading.Lock()
_modes = 0  # that threads are in

# Where functions are, below the package, that take tensors or make them, and the names of some that do not.
_HOMES = ("_functions.", "_ops.", "_tensors.arrays", "nn.functional.", "fft", "linalg", "special")
_OTHERS = (
    "_functions.config",
    "_functions.compiling",
    "_functions.checks",
    "_functions._common",
    "_functions._checked",
    "_functions._fast",
)
_MODES_ONLY = frozenset({"as_tensor", "asarray", "tensor"})  # an argument is data to them
_NOT = frozenset({"from_numpy", "frombuffer"})
_SPECIAL = frozenset({"__copy__", "__iter__", "__getattr__", "__array_namespace__", "__dlpack_device__", "__pos__"})
_PLAIN_METHODS = frozenset({"as_subclass", "has_names"})


# The attribute of a tensor without elements that says where it claims to be.
CLAIMED = "_plait_device"

disabled_torch_function: Any = disabled


def declares(cls: type) -> bool:
    """Whether a class derived from `Tensor` overrides functions; the default keeps the class of results."""
    own = getattr(cls, "__torch_function__", disabled_torch_function)
    return own is not disabled_torch_function


def arm_for(cls: type) -> None:
    """Has functions look for tensors of a class, if it overrides them: the first one is being made."""
    if cls in OVERRIDING or cls is _tensor():
        return
    operations = hasattr(cls, "__torch_dispatch__")
    if not declares(cls) and not operations:
        return
    _arm()
    if operations:
        load_operations()
    with _lock:
        if operations:
            DISPATCHING.add(cls)
        OVERRIDING.add(cls)


def load_operations() -> None:
    """Has functions lowered to operations where something takes those over."""
    if not LOWER:
        from plait._dispatch.lowering import lower

        LOWER.append(lower)


def install(cls: type) -> None:
    """Gives a class that overrides functions operators and properties that look, where it has `Tensor`'s."""
    if not declares(cls) and not hasattr(cls, "__torch_dispatch__"):
        return
    for name, base in _slots():
        if next(c for c in cls.__mro__ if name in vars(c)) in _bases():
            setattr(cls, name, _operator(name, base) if callable(base) else _property(name, base))
    if hasattr(cls, "__torch_dispatch__") and isinstance(vars(cls).get("device"), property):
        cls.device = _claimed(cls.device)  # type: ignore[attr-defined]


class DisableTorchFunctionSubclass:
    """A context manager in which no class of the arguments overrides functions, in the thread. Modes still do."""

    def __enter__(self) -> None:
        state.classes_off += 1

    def __exit__(self, *exc: object) -> None:
        state.classes_off -= 1


class DisableTorchFunction:
    """A context manager in which neither modes nor classes override functions, in the thread."""

    def __enter__(self) -> None:
        state.all_off += 1

    def __exit__(self, *exc: object) -> None:
        state.all_off -= 1


# --- modes ---


def enter(mode: Any, modes: list[Any] | None = None) -> None:
    """Has the functions that the thread calls ask a mode.

    Args:
        mode: of functions, or of the operations below them
        modes: those of the thread, of its kind; by default those of functions
    """
    global _modes
    _arm()
    with _lock:
        _modes += 1
        if _modes == 1:
            OVERRIDING.add(AMode)
            for name, base in _slots():
                if callable(base):
                    setattr(_tensor(), name, _operator(name, base))
                else:
                    _swap(base.fget, base.__get__)
                    if base.fset is not None:
                        _swap(base.fset, base.__set__)
    (state.modes if modes is None else modes).append(mode)


def leave(mode: Any, modes: list[Any] | None = None) -> None:
    """Ends `enter`."""
    global _modes
    modes = state.modes if modes is None else modes
    if mode not in modes:
        raise RuntimeError(f"{type(mode).__name__}.__exit__: the thread has not entered this mode, or has left it")
    modes.remove(mode)
    with _lock:
        _modes -= 1
        if not _modes:
            OVERRIDING.discard(AMode)
            for name, base in _slots():
                if callable(base):
                    delattr(_tensor(), name)
                else:
                    _swap_back(base.fget)
                    if base.fset is not None:
                        _swap_back(base.fset)


# --- functions ---


def _look(*args: Any, _armed: Any, **kwargs: Any) -> Any:
    return _armed(*args, **kwargs)


@functools.cache
def _code(cells: tuple[str, ...]) -> CodeType:
    """Returns the code of `_look` for a function with variables of its surroundings: it has to have as many."""
    if not cells:
        return _look.__code__
    names = [f"c{i}" for i in range(len(cells))]
    space: dict[str, Any] = {}
    text = (
        f"def make({', '.join(names)}):\n"
        "    def _look(*args, _armed, **kwargs):\n"
        f"        return _armed(*args, **kwargs) if _armed else ({', '.join(names)})\n"
        "    return _look\n"
    )
    exec(text, space)
    code: CodeType = space["make"](*names).__code__
    return code


def _swap(function: Any, target: Any) -> None:
    """Makes a function look whether something overrides it, under the name of another one, its target."""
    if function in PLAIN:
        return
    code = function.__code__
    plain = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    plain.__kwdefaults__, plain.__dict__ = function.__kwdefaults__, dict(function.__dict__)
    plain.__qualname__, plain.__module__, plain.__doc__ = function.__qualname__, function.__module__, function.__doc__
    plain.__annotations__ = function.__annotations__
    PLAIN[function] = plain
    modes_only = function.__name__ in _MODES_ONLY

    def armed(*args: Any, **kwargs: Any) -> Any:
        if (found := found_in(args, kwargs)) is not None and (state.modes or not modes_only):
            return handle(target, found, args, kwargs)
        return plain(*args, **kwargs)

    # In this order, since another thread may call the function meanwhile. Its defaults by position are no business of
    # the new code, which has no such arguments.
    function.__wrapped__ = plain  # which has the signature
    function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "_armed": armed}
    function.__code__ = _code(code.co_freevars).replace(
        co_name=code.co_name, co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
    )


def _swap_back(function: Any) -> None:
    if (plain := PLAIN.pop(function, None)) is not None:  # properties may share it
        function.__code__ = plain.__code__
        function.__kwdefaults__ = plain.__kwdefaults__
        del function.__wrapped__


@functools.cache
def _arm() -> None:
    """Has all functions look, for the process."""
    with _lock:
        tensor = _tensor()
        operators = {"add", "sub", "div", "pow", "add_", "sub_", "div_", "pow_"}
        for _, function in functions():
            if function.__code__ not in overriding._LOOKING:
                name = function.__name__
                method = function.__module__.startswith("plait._ops.") and name in operators
                _swap(function, getattr(tensor, name) if method else function)


def functions() -> Iterator[tuple[Any, FunctionType]]:
    """Yields the functions and the methods of tensors that can be overridden, behind the module or class of each."""
    for space in _spaces():
        for name, value in list(vars(space).items()):
            if isinstance(value, FunctionType) and _can_be(name, value, space):
                yield space, value


def _spaces() -> Iterator[Any]:
    yield from _bases()
    derived = [_tensor()]
    while derived:
        derived += derived[0].__subclasses__()
        if derived[0].__module__.startswith("plait."):
            yield derived[0]
        del derived[0]
    for name in ("plait", "plait.nn.functional", "plait.fft", "plait.linalg", "plait.special", "plait._ops"):
        yield sys.modules[name]


def _can_be(name: str, function: FunctionType, space: Any) -> bool:
    if isinstance(space, ModuleType):
        home = function.__module__.removeprefix("plait.")
        return name[0] != "_" and name not in _NOT and (home + ".").startswith(_HOMES) and not home.startswith(_OTHERS)
    if name[:2] == "__":
        return (
            name not in _SPECIAL and "_slow" not in function.__qualname__ and "_reflected" not in function.__qualname__
        )
    return name[0] != "_" and name not in _PLAIN_METHODS


# --- operators and properties ---


def _tensor() -> Any:
    return sys.modules["plait._tensor"].Tensor


@functools.cache
def _bases() -> tuple[type, ...]:
    return _tensor().__mro__[:-1]  # type: ignore[no-any-return]


@functools.cache
def _slots() -> tuple[tuple[str, Any], ...]:
    """Returns the operators that the type below `Tensor` has, and the properties, by name."""
    out = {n: v for n, v in vars(_Tensor).items() if n.strip("_").removeprefix("r") in _FUNCTIONS}
    for base in _bases():
        out.update((n, v) for n, v in vars(base).items() if isinstance(v, property) and n[0] != "_" and n not in out)
    return tuple(out.items())


_FUNCTIONS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}


def _operator(name: str, base: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns an operator that looks, of which `base` is the tensors' one."""
    stem = name.strip("_")
    reflected = stem not in _FUNCTIONS
    method = getattr(_tensor(), _FUNCTIONS[stem[1:] if reflected else stem])
    commutes = stem in ("radd", "rmul")

    def operator(self: Any, other: Any) -> Any:
        if (found := found_in((self, other), {})) is None:
            return base(self, other)
        if not isinstance(other, _Tensor | int | float | complex) and not overriding.overrides(other):
            try:
                return handle(method, found, (self, other), {})
            except TypeError:
                return NotImplemented  # the other's operator may know
        if not reflected:
            return handle(method, found, (self, other), {})
        if isinstance(other, _Tensor) or overriding.overrides(other):
            return handle(method, found, (other, self), {})
        # Of an operator in C nobody asks again who takes over what is below.
        return handle(method if commutes else operator if DISPATCHING else base, found, (self, other), {})

    operator.__name__ = operator.__qualname__ = name
    return operator


def _claimed(base: property) -> property:
    """Returns the property `device` of a class whose tensors may have no elements, and say where they are."""

    def get(self: Any) -> Any:
        claimed = self.__dict__.get(CLAIMED)
        return base.__get__(self) if claimed is None else claimed

    get.__name__ = "device"
    return property(get, None, None, base.__doc__)


def _property(name: str, base: property) -> property:
    """Returns a property that looks, of which `base` is the tensors' one."""

    def get(self: Any) -> Any:
        if (found := found_in((self,), {})) is None:
            return base.__get__(self)
        return handle(base.__get__, found, (self,), {})

    def put(self: Any, value: Any) -> None:
        if (found := found_in((self, value), {})) is None:
            base.__set__(self, value)
        else:
            handle(base.__set__, found, (self, value), {})

    get.__name__ = name
    return property(get, put if base.fset else None, base.fdel, base.__doc__)
