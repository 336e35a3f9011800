"""Backward passes: the engine runs them, and hands back what belongs to Python."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plait import _core
from plait._runtime import address, call, check, own

if TYPE_CHECKING:
    from plait._tensor import Tensor


class RemovableHandle:
    """Takes a hook away again: with `remove()`, or at the end of a `with` block."""

    def __init__(self, remove: Callable[[], object]) -> None:
        self._remove: Callable[[], object] | None = remove

    def remove(self) -> None:
        """Takes the hook away; doing it again does nothing."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _handles(tensors: Sequence[Tensor | None]) -> array[int]:
    try:
        return array("q", [0 if t is None else t._h for t in tensors])
    except AttributeError:
        kinds = ", ".join(type(t).__name__ for t in tensors)
        raise TypeError(f"backward: want tensors, got {kinds}") from None


def _sequence(value: Any) -> tuple[Any, ...]:
    from plait._tensor import Tensor

    return (value,) if value is None or isinstance(value, Tensor) else tuple(value)


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
    outputs = _handles(_sequence(tensors))
    grads = None if grad_tensors is None else _handles(_sequence(grad_tensors))
    wanted = None if inputs is None else _handles(_sequence(inputs))
    if wanted is not None and len(wanted) == 0:
        raise RuntimeError("backward: inputs is empty")
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
        is_grads_batched: not there
        materialize_grads: return zeros for such an input
    """
    if not only_inputs:
        raise NotImplementedError("grad: only_inputs=False is not there; use backward")
    if is_grads_batched:
        raise NotImplementedError("grad: is_grads_batched is not there; loop over the gradients")
    outs, ins = _sequence(outputs), _sequence(inputs)
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
        from plait import _ops

        results = [_ops.zeros_like(t) if g is None else g for g, t in zip(results, ins, strict=True)]
    return tuple(results)


# What a pass asks for, as `bind_BackwardStep` numbers it.
_DERIVATIVE, _HOOK, _NODE_HOOK, _POST_HOOK = 1, 2, 3, 4


class _Passes(threading.local):
    """What the calling thread's derivatives must know: whether the pass they run in is restricted to some inputs."""

    restricted = False


passes = _Passes()


def _finish(run: int, retain: bool, restricted: bool) -> None:
    """Runs a pass to its end, and the Python functions that it asks for on the way."""
    from plait._tensor import collect, kept

    while wanted := call(_core.bind_BackwardStep, run):
        buffer = array("q", bytes(8 * _core.bind_BackwardGradCount(run)))
        check(_core.bind_BackwardGrads(run, address(buffer)))
        grads = [own(h) if h else None for h in buffer]
        function = kept(_core.bind_BackwardKey(run))
        answer: Sequence[Tensor | None]
        if wanted == _DERIVATIVE:
            before = _core.bind_ModeGet()
            _core.bind_ModeSet(_core.bind_BackwardMode(run))
            outside, passes.restricted = passes.restricted, restricted
            try:
                answer = function(run, retain, grads)
            finally:
                passes.restricted = outside
                _core.bind_ModeSet(before)
        elif wanted == _POST_HOOK:
            function(*grads)
            answer = ()
        elif wanted == _HOOK:
            result = function(*grads)
            answer = () if result is None else (result,)
        else:
            result = function(grads)
            answer = () if result is None else tuple(result)
        out = _handles(answer)
        check(_core.bind_BackwardAnswer(run, address(out), len(out)))
    collect()


def register_hook(t: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Does what `Tensor.register_hook` says."""
    from plait._tensor import keep

    if not t.requires_grad:
        raise RuntimeError("register_hook: the tensor does not require a gradient")
    h = call(_core.bind_HookAdd, t._h, keep(hook))
    return RemovableHandle(lambda: check(_core.bind_HookRemove(h)))


def register_post_accumulate_grad_hook(t: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Does what `Tensor.register_post_accumulate_grad_hook` says."""
    import weakref

    from plait._tensor import keep

    if not (t.is_leaf and t.requires_grad):
        raise RuntimeError("register_post_accumulate_grad_hook: want a leaf that requires a gradient")
    leaf = weakref.ref(t)

    def run(_grad: Tensor) -> None:
        if (alive := leaf()) is not None:
            hook(alive)

    h = call(_core.bind_HookAddPost, t._h, keep(run))
    return RemovableHandle(lambda: check(_core.bind_HookRemove(h)))
