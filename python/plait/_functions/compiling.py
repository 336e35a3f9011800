"""Functions replayed: `compile` runs a function by launching the calls that it once launched."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterator
from types import NoneType
from typing import TYPE_CHECKING, Any

from plait import _core
from plait._device import device
from plait._dtype import dtype
from plait._engine.replay import Recording, thread
from plait._engine.runtime import TensorBase, address, call, check, handles, own
from plait._engine.warnings import warn
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait.optim._engine import EngineOptimizer

__all__ = ["compile"]

_PLAIN = (bool, int, float, str, bytes, NoneType, dtype, device, slice)
_MAX_HELD = 64
_RECORDS, _REPLAYS = 1, 2


class _At:
    """The place of a tensor in a structure."""

    def __init__(self, index: int) -> None:
        self.index = index


class Replayed(_core.ObjectOwner):
    """The recordings of a function, or of a module's calls."""

    def __init__(self, name: str, fullgraph: bool = False) -> None:
        self.name, self.fullgraph = name, fullgraph
        self._h = check(_core.bind_ReplayNew())
        self._held: dict[int, Any] = {}  # arguments that are told apart by identity
        self._optimizers: dict[EngineOptimizer, int] = {}  # those that step in recordings, with their handles
        self._results: dict[str, tuple[Any, list[Any]]] = {}  # structure and tensors of what was returned

    def __reduce__(self) -> tuple[Any, ...]:
        return Replayed, (self.name, self.fullgraph)  # a copy of a module begins anew

    def _pack(self, value: Any, tensors: list[Any], key: list[str]) -> Any:
        """Returns a structure with places for its tensors, which are added to a list, and adds the rest to the key."""
        if isinstance(value, TensorBase):
            tensors.append(value)
            key.append("tensor")
            return _At(len(tensors) - 1)
        kind = type(value)
        if kind is dict:
            key.append(f"dict {list(map(repr, value))}")
            return {k: self._pack(v, tensors, key) for k, v in value.items()}
        if isinstance(value, list | tuple):
            key.append(f"{kind.__qualname__} {len(value)}")
            parts = [self._pack(v, tensors, key) for v in value]
            return parts if kind is list else kind(*parts) if hasattr(value, "_fields") else kind(parts)
        if isinstance(value, _PLAIN):
            key.append(f"{kind.__qualname__} {value!r}")
        else:
            if len(self._held) < _MAX_HELD:
                self._held[id(value)] = value
            key.append(f"{kind.__qualname__} at {id(value)}")
        return value

    def run(self, function: Callable[..., Any], modules: Iterator[Any], args: Any, kwargs: Any) -> Any:
        """Returns what the function returns for the arguments; modules are those that it may use."""
        tensors: list[Any] = []
        parts: list[str] = []
        packed = self._pack((args, kwargs), tensors, parts)
        parts += (
            "".join("te"[not m.training] for module in modules for m in module.modules()),
            f"{_core.bind_GradEnabled()} {_core.bind_InferenceEnabled()}",
        )
        key = "\n".join(parts)
        self._sync()
        given = handles(tensors) if len(tensors) != 1 else array("q", (tensors[0]._h,))
        turn = call(_core.bind_ReplayBegin, self._h, key, address(given), len(given))
        try:
            how = check(_core.bind_ReplayHow(turn))
            if how == _REPLAYS:
                return self._replay(turn, key)
            self._tell(raises=False)
            if how != _RECORDS:
                return function(*args, **kwargs)
            return self._record(turn, key, function, packed, len(tensors))
        finally:
            _core.bind_ObjectRelease(turn)

    def _sync(self) -> None:
        """Tells the engine what has changed in the optimisers, and begins anew if one was made anew."""
        for o in self._optimizers:
            o._sync()
        if any(o._handle != h for o, h in self._optimizers.items()):
            old, self._h = self._h, check(_core.bind_ReplayNew())
            _core.bind_ObjectRelease(old)
            self._optimizers, self._results = {}, {}

    def _replay(self, turn: int, key: str) -> Any:
        form, before = self._results[key]
        out = array("q", bytes(8 * len(before)))
        check(_core.bind_ReplayRun(turn, address(out), len(out)))
        return _unpack(form, [own(h) if h else b for h, b in zip(out, before, strict=True)])

    def _record(self, turn: int, key: str, function: Callable[..., Any], packed: Any, n: int) -> Any:
        inputs = array("q", bytes(8 * n))
        check(_core.bind_ReplayInputs(turn, address(inputs), n))
        args, kwargs = _unpack(packed, [own(h) for h in inputs])
        thread.recording = Recording({o: list(o._sent) for o in self._optimizers})
        try:
            result = function(*args, **kwargs)
            stepped = thread.recording.stepped
        finally:
            thread.recording = None
        tensors: list[Any] = []
        form = self._pack(result, tensors, [])
        given = handles(tensors) if len(tensors) != 1 else array("q", (tensors[0]._h,))
        out = array("q", bytes(8 * len(given)))
        check(_core.bind_ReplayEnd(turn, address(given), len(given), address(out)))
        self._optimizers.update((o, o._handle) for o in stepped)
        self._tell(raises=self.fullgraph)
        copies = [own(h) if h else None for h in out]
        # What the function has made is not kept: the recording has its own.
        self._results[key] = form, [None if c is not None else t for c, t in zip(copies, tensors, strict=True)]
        return _unpack(form, [t if c is None else c for c, t in zip(copies, tensors, strict=True)])

    def _tell(self, raises: bool) -> None:
        while reason := _core.bind_ReplayReason(self._h):
            said = f"plait.compile: {self.name} runs without a replay: {reason.removeprefix('replay: ')}"
            if raises:
                raise RuntimeError(said)
            warn(said)


def _unpack(form: Any, tensors: list[Any]) -> Any:
    if isinstance(form, _At):
        return tensors[form.index]
    kind = type(form)
    if kind is dict:
        return {k: _unpack(v, tensors) for k, v in form.items()}
    if isinstance(form, list | tuple):
        parts = [_unpack(v, tensors) for v in form]
        return parts if kind is list else kind(*parts) if hasattr(form, "_fields") else kind(parts)
    return form


def _is_module(value: Any) -> bool:
    return hasattr(value, "modules") and hasattr(value, "training") and not isinstance(value, type)


def _modules(function: Any) -> Iterator[Any]:
    """Yields the modules that a function refers to: in its closure, its object, its defaults and its globals."""
    seen = []
    if (owner := getattr(function, "__self__", None)) is not None:
        seen += [owner, *getattr(owner, "__dict__", {}).values()]
    inner = getattr(function, "__func__", function)
    if isinstance(inner, functools.partial):
        seen += [*inner.args, *inner.keywords.values()]
        inner = inner.func
    for cell in getattr(inner, "__closure__", None) or ():
        try:
            seen.append(cell.cell_contents)
        except ValueError:  # not set yet
            continue
    seen += getattr(inner, "__defaults__", None) or ()
    space = getattr(inner, "__globals__", {})
    seen += (space[n] for n in getattr(getattr(inner, "__code__", None), "co_names", ()) if n in space)
    return (v for v in seen if _is_module(v))


@checked
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    dynamic_shapes: Any = None,
) -> Any:
    """Returns a function that does what the given one does, in less time once it has run a few times; also a decorator.

    The calls of kernels that the function launches are recorded, and from the fourth run on they are launched without
    Python; on NVIDIA GPUs as graphs. Give it a whole training step::

        @plait.compile
        def step(x, y):
            optimizer.zero_grad()
            loss = loss_function(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        for x, y in loader:
            loss = step(x, y)
            scheduler.step()

    The results are the same, bit for bit: random numbers, rates and step counts are those of the present step. There
    is a recording for each combination of the arguments' shapes, dtypes, devices and other values, and of the training
    modes of modules that the function refers to; at most eight. A function that cannot be replayed runs as it is, and
    a warning says once why: if it reads a value, such as `loss.item()`, uses two devices, computes with numbers or
    tensors that differ each time, or returns a tensor whose gradient is still to come. So a model alone is replayed
    without gradients only.

    In a replay nothing but kernels runs: no print, hook or counter of Python's. A decision that no argument shows is
    not noticed. Results are copies without a graph; gradients, and tensors that the function keeps elsewhere, stay in
    the same memory, which the next replay overwrites.

    Args:
        model: a function, or a module, whose calls are then replayed, and which is returned
        fullgraph: raise RuntimeError instead of a warning if the function cannot be replayed
        dynamic: has no effect
        backend: "eager" returns the function as it is; others have no effect
        mode: has no effect
        options: has no effect
        name: what warnings call the function
        disable: return the function as it is
        recompile_limit: has no effect
        isolate_recompiles: has no effect
        dynamic_shapes: has no effect
    """
    if model is None:
        return lambda given: compile(given, fullgraph=fullgraph, backend=backend, name=name, disable=disable)
    if not callable(model):
        raise TypeError(f"compile: want a function or a module, got {type(model).__name__} {model!r}")
    if disable or backend == "eager":
        return model
    if _is_module(model) and hasattr(model, "_call_hooked"):
        model.__dict__["_replayed"] = Replayed(name or type(model).__name__, fullgraph)
        return model
    replayed = Replayed(name or str(getattr(model, "__name__", type(model).__name__)), fullgraph)

    @functools.wraps(model, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        return replayed.run(model, _modules(model), args, kwargs)

    return run
