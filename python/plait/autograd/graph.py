"""The recorded graph: its nodes, hooks on what they save, and hooks on several gradients."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from plait import _core
from plait._autograd.backward import passes
from plait._autograd.hooks import RemovableHandle
from plait._autograd.node import GradientEdge, Node, node_of
from plait._autograd.saved_tensors import saved_tensors_hooks, stack
from plait._device import device
from plait._engine.missing_names import absent as _absent
from plait._errors import MissingFeatureError
from plait._tensor import Tensor


def queue_callback(callback: Callable[[], None]) -> None:
    """Calls a function when the backward pass in which this is called, from a hook or a derivative, has ended."""
    if not passes.run:
        raise RuntimeError("queue_callback: Final callbacks can only be installed during backward pass")
    passes.callbacks.append(callback)


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """Inside, what operations save is kept on the CPU until backward needs it.

    Args:
        pin_memory: has no effect
        device_type: has no effect
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def to_cpu(t: Tensor) -> tuple[device, Tensor]:
            return t.device, t if t.device.type == "cpu" else t.to("cpu")

        def back(packed: tuple[device, Tensor]) -> Tensor:
            where, t = packed
            return t.to(where)

        super().__init__(to_cpu, back)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, `saved_tensors_hooks` raises a RuntimeError with the message; so does coming here with hooks in force."""
    if stack.hooks:
        raise RuntimeError(error_message)
    stack.disabled.append(error_message)
    try:
        yield
    finally:
        stack.disabled.pop()


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Returns where the gradient of a tensor flows: it stands for the tensor in backward passes, without its value.

    Raises:
        RuntimeError: if the tensor requires no gradient.
    """
    if not tensor.requires_grad:
        raise RuntimeError("get_gradient_edge: the tensor does not require a gradient")
    node = node_of(_core.bind_GradEdge(tensor._h))
    assert node is not None
    return GradientEdge(node, tensor.output_nr)


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: Literal["all", "any"] = "all"
) -> RemovableHandle:
    """Calls a function in every backward pass in which gradients of some tensors are computed.

    Args:
        tensors: those to watch; each must require a gradient
        fn: with mode "all" it gets the sequence of gradients, None for those that the pass does not compute, once all
            the others are there; with "any" it gets the first gradient that is
        mode: see fn
    """
    if mode not in ("all", "any"):
        raise ValueError(f'register_multi_grad_hook: want mode "all" or "any", got {mode!r}')
    lock = threading.Lock()
    nodes = [get_gradient_edge(t).node for t in tensors]
    seen: dict[int, list[Tensor | None]] = {}
    left: dict[int, int] = {}
    done: set[int] = set()

    def forget(run: int) -> None:
        seen.pop(run, None)
        left.pop(run, None)
        done.discard(run)

    def one(i: int, grad: Tensor) -> None:
        run = passes.run
        with lock:
            if run not in seen:
                seen[run] = [None] * len(nodes)
                left[run] = sum(_core.bind_BackwardRuns(run, n._h) for n in nodes)
                passes.closing.append(lambda: forget(run))
            grads = seen[run]
            grads[i] = grad
            left[run] -= 1
            call = left[run] == 0 if mode == "all" else run not in done
            done.add(run)
        if call:
            fn(grads if mode == "all" else grad)

    def watch(i: int) -> Callable[[Tensor], None]:
        return lambda grad: one(i, grad)

    handles = [t.register_hook(watch(i)) for i, t in enumerate(tensors)]

    def remove() -> None:
        for h in handles:
            h.remove()

    return RemovableHandle(remove)


def __getattr__(name: str) -> Any:
    if name in ("allow_mutation_on_saved_tensors", "increment_version", "node_creation_hook"):
        raise MissingFeatureError(f"plait.autograd.graph.{name} is not there")
    raise _absent("graph", "plait.autograd.graph", name)


__all__ = [
    "GradientEdge",
    "Node",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "queue_callback",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
