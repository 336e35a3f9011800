"""Backward passes: the engine runs them, and hands back what belongs to Python."""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait._autograd import batch as _batch
from plait._autograd.node import GradientEdge, after
from plait._autograd.saved_tensors import unpack
from plait._engine.callbacks import collect, kept
from plait._engine.runtime import address, call, check, is_tensor, own
from plait._functions._checked import overridable

if TYPE_CHECKING:
    from plait._tensor import Tensor


def _handles(tensors: Sequence[Tensor | None]) -> array[int]:
    try:
        return array("q", [0 if t is None else t._h for t in tensors])
    except AttributeError:
        kinds = ", ".join(type(t).__name__ for t in tensors)
        raise TypeError(f"backward: want tensors, got {kinds}") from None


def _sequence(value: Any) -> tuple[Any, ...]:
    return (value,) if value is None or is_tensor(value) else tuple(value)


def _ends(value: Any) -> tuple[Any, ...]:
    """Returns the tensors where passes begin or end; gradient edges among them become tensors that stand for them."""

    given = (value,) if isinstance(value, GradientEdge) or is_tensor(value) else tuple(value)
    return tuple(t.stand() if isinstance(t, GradientEdge) else t for t in given)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Adds the gradients of tensors to those of the leaves they depend on.

    Args:
        tensors: one or several
        grad_tensors: their gradients; may be left out, or None, for those with one element
        retain_graph: keep the graph for another pass; what create_graph says by default
        create_graph: record the pass, so that gradients can be differentiated
        inputs: the tensors that collect gradients; all leaves by default
    """
    outs, ins = _ends(tensors), None if inputs is None else _ends(inputs)
    outputs = _handles(outs)
    grads = None if grad_tensors is None else _handles(_sequence(grad_tensors))
    wanted = None if ins is None else _handles(ins)
    if wanted is not None and len(wanted) == 0:
        raise RuntimeError("backward: `inputs` argument to `backward()` cannot be empty")
    if grads is not None and len(grads) != len(outputs):
        raise RuntimeError(f"backward: got {len(outputs)} tensors and {len(grads)} gradients")
    run = check(
        _core.bind_BackwardNew(
            address(outputs),
            0 if grads is None else address(grads),
            len(outputs),
            0 if wanted is None else address(wanted),
            -1 if wanted is None else len(wanted),
            bool(create_graph if retain_graph is None else retain_graph),
            bool(create_graph),
        )
    )
    try:
        _finish(run, bool(create_graph if retain_graph is None else retain_graph), inputs is not None)
    finally:
        _core.bind_ObjectRelease(run)


@overridable
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Returns the gradients of outputs, summed, with respect to inputs.

    Args:
        outputs: one or several tensors
        inputs: one or several tensors that they depend on
        grad_outputs: the gradients of the outputs; may be left out, or None, for those with one element
        retain_graph: keep the graph for another pass; what create_graph says by default
        create_graph: record the pass, so that the results can be differentiated
        only_inputs: must be True
        allow_unused: return None for an input that the outputs do not depend on, where it would be an error
        is_grads_batched: each of grad_outputs has a first dimension more, along which the gradients of several passes
            lie; so have the results
        materialize_grads: return zeros for such an input
    """
    if not only_inputs:
        raise NotImplementedError("grad: only_inputs=False is not there; use backward")
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "grad: Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False"
        )
    outs, ins = _ends(outputs), _ends(inputs)
    if is_grads_batched:
        keep = bool(create_graph if retain_graph is None else retain_graph)
        return _batched(outs, ins, _sequence(grad_outputs), keep, create_graph, allow_unused, materialize_grads)
    grads = None if grad_outputs is None else _handles(_sequence(grad_outputs))
    if grads is not None and len(grads) != len(outs):
        raise RuntimeError(f"grad: got {len(outs)} outputs and {len(grads)} gradients")
    o, i = _handles(outs), _handles(ins)
    unused = materialize_grads if allow_unused is None else allow_unused
    run = check(
        _core.bind_BackwardGradNew(
            address(o),
            0 if grads is None else address(grads),
            len(o),
            address(i),
            len(i),
            bool(create_graph if retain_graph is None else retain_graph),
            bool(create_graph),
            bool(unused),
        )
    )
    try:
        _finish(run, bool(create_graph if retain_graph is None else retain_graph), True)
        out = array("q", bytes(8 * len(i)))
        check(_core.bind_BackwardTake(run, address(out)))
    finally:
        _core.bind_ObjectRelease(run)
    results = [own(h) if h else None for h in out]
    if materialize_grads:
        results = [_ops.zeros_like(t) if g is None else g for g, t in zip(results, ins, strict=True)]
    return tuple(results)


def reaches_others(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
    """Whether gradients of outputs flow to leaves by other ways than through inputs."""
    o, i = _handles(tuple(outputs)), _handles(tuple(inputs))
    return bool(check(_core.bind_ReachesOthers(address(o), len(o), address(i), len(i))))


def _batched(
    outs: tuple[Any, ...], ins: tuple[Any, ...], grads: tuple[Any, ...], retain_graph: bool, *options: Any
) -> tuple[Tensor | None, ...]:
    """Does what `grad` says of is_grads_batched: one pass for all places in the first dimension of the gradients."""
    sizes = {g.shape[0] if g.shape else -1 for g in grads if g is not None}
    for i, (o, g) in enumerate(zip(outs, grads, strict=True)):
        if g is None or not g.shape or g.shape[1:] != o.shape or len(sizes) != 1:
            raise RuntimeError(
                "grad: If `is_grads_batched=True`, the first dimension of each grad_output is the batch dimension and "
                f"the others are those of the output, but grad_output[{i}] has shape "
                f"{None if g is None else list(g.shape)} and output[{i}] has shape {list(o.shape)}"
            )
    (size,) = sizes
    create_graph, allow_unused, materialize = options
    if not size:
        return tuple(t.new_zeros((0, *t.shape)) for t in ins)
    with _batch.Level(size) as level:
        found = grad(
            outs,
            ins,
            [level.wrap(g) for g in grads],
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=allow_unused,
            materialize_grads=materialize,
        )
        return tuple(None if g is None else level.whole(g) for g in found)


# What a pass asks for, as `bind_BackwardStep` numbers it.
_DERIVATIVE, _HOOK, _PRE_HOOK, _POST_HOOK, _BUCKET, _AFTER_HOOK, _SAVED = range(1, 8)


class _Passes(threading.local):
    """The pass that the calling thread runs: its handle, what is to be called at its end, and whether it is restricted
    to some inputs."""

    def __init__(self) -> None:
        self.run = 0
        self.restricted = False
        self.callbacks: list[Callable[[], object]] = []  # that the program queued for the pass's end
        self.closing: list[Callable[[], object]] = []  # called also when the pass fails
        self.hooked = _Hooked()


class _Hooked:
    """The gradient that a tensor's hook was last called with: the next hook gets the same object, with what the
    program has noted on it, if that gradient is still the same."""

    __slots__ = ("_held", "_seen")

    def __init__(self) -> None:
        self._seen: Callable[[], Tensor | None] = lambda: None
        self._held: Tensor | None = None

    def known(self, grad: Tensor) -> Tensor:
        """Returns the object that the program knows the gradient by."""
        seen, self._held = self._seen(), None
        same = seen is not None and seen.dtype is grad.dtype and seen.is_set_to(grad)
        return seen if seen is not None and same else grad

    def note(self, grad: Tensor) -> None:
        """Remembers a gradient, and keeps it if the program has noted something on it."""
        self._seen, self._held = weakref.ref(grad), grad if vars(grad) else None


passes = _Passes()


def _finish(run: int, retain: bool, restricted: bool) -> None:
    """Runs a pass to its end, and the Python functions that it asks for on the way."""
    outside = passes.__dict__.copy()
    try:
        passes.__dict__.update(run=run, restricted=restricted, callbacks=[], closing=[], hooked=_Hooked())
        while wanted := call(_core.bind_BackwardStep, run):
            before = _core.bind_ModeGet()
            try:
                _core.bind_ModeSet(_core.bind_BackwardMode(run))
                answer = _answer(run, wanted, retain)
            finally:
                _core.bind_ModeSet(before)
            out = _handles(answer)
            check(_core.bind_BackwardAnswer(run, address(out), len(out)))
            del answer
            collect()  # what the nodes behind have let go of
        for callback in passes.callbacks:  # one may queue another
            callback()
    except BaseException as error:
        _core.bind_BackwardFail(run, f"{type(error).__name__}: {error}", isinstance(error, MemoryError))
        raise
    finally:
        try:
            for close in passes.closing:
                close()
        finally:
            passes.__dict__.update(outside)
            collect()


class PartOfPass:
    """The Python side of a backward pass that the engine runs as a part of more, such as a pipeline's step."""

    def __init__(self, run: int) -> None:
        self._state: dict[str, Any] = {
            "run": run,
            "restricted": False,
            "callbacks": [],
            "closing": [],
            "hooked": _Hooked(),
        }
        self.run = run

    def answer(self, wanted: int) -> Sequence[Tensor | None]:
        """Returns the answer of the function that the pass asks for."""
        outside = passes.__dict__.copy()
        try:
            passes.__dict__.update(self._state)
            return _answer(self.run, wanted, False)
        finally:
            passes.__dict__.update(outside)

    def end(self) -> None:
        """Calls what waited for the end of the pass."""
        try:
            for callback in self._state["callbacks"]:
                callback()
        finally:
            for close in self._state["closing"]:
                close()
            _core.bind_ObjectRelease(self.run)


def _answer(run: int, wanted: int, retain: bool) -> Sequence[Tensor | None]:
    """Returns the answer of the function that a pass asks for."""
    if wanted == _SAVED:
        keys = array("q", bytes(8 * _core.bind_BackwardSavedCount(run)))
        check(_core.bind_BackwardSaved(run, address(keys)))
        return [unpack(packed, hook) for hook, packed in map(kept, keys)]
    function = kept(_core.bind_BackwardKey(run))
    if wanted == _BUCKET:
        return function(_core.bind_BackwardBucket(run))
    buffer = array("q", bytes(8 * _core.bind_BackwardGradCount(run)))
    check(_core.bind_BackwardGrads(run, address(buffer)))
    grads = [own(h) if h else None for h in buffer]
    if wanted == _DERIVATIVE:
        if at := _batch.depth(*grads):  # the function's derivative knows of no batch
            return _batch.each(lambda *own: tuple(function(run, True, list(own))), grads, at)
        return function(run, retain, grads)
    if wanted == _POST_HOOK:
        function(*grads)
        return ()
    if wanted == _HOOK:
        (given,) = grads
        assert given is not None
        grad = passes.hooked.known(given)
        result = function(grad)
        if result is not None and not is_tensor(result):
            raise TypeError(
                f"backward: hook {_name(function)} must return a Tensor or None, got {type(result).__name__}"
            )
        passes.hooked.note(grad if result is None else result)
        return () if result is None else (result,)
    result = function(tuple(grads)) if wanted == _PRE_HOOK else function(tuple(grads), after(run))
    if result is None:
        return ()
    if is_tensor(result):
        result = (result,)
    if not isinstance(result, tuple):
        raise TypeError(f"backward: hook {_name(function)} must return a tuple or None, got {type(result).__name__}")
    if len(result) != len(grads):
        raise RuntimeError(
            f"backward: hook {_name(function)} has returned an incorrect number of values "
            f"(got {len(result)}, but expected {len(grads)})"
        )
    for r, g in zip(result, grads, strict=True):
        if r is not None and not is_tensor(r):
            raise TypeError(f"backward: hook {_name(function)} must return tensors, got {type(r).__name__}")
        if r is not None and g is None:
            raise RuntimeError(f"backward: hook {_name(function)} can't replace a None gradient with a non-None value")
    return result


def _name(function: Any) -> str:
    return repr(getattr(function, "__name__", type(function).__name__))
