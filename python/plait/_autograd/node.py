"""Recorded operations as Python sees them: the nodes of the graph, and the edges into them."""

from __future__ import annotations

import functools
import threading
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from plait import _core
from plait._autograd.hooks import EngineHook, RemovableHandle
from plait._engine.callbacks import collect, keep, kept
from plait._engine.runtime import address, check, own

if TYPE_CHECKING:
    from plait._tensor import Tensor


def title(name: str) -> str:
    """Returns PyTorch's name for the node of an operation of the engine."""
    if name == "accumulate_grad":
        return "AccumulateGrad"
    if name[:1].isupper():  # a custom function's
        return name
    return "".join(p.capitalize() for p in name.strip("_").split("_")) + "Backward0"


class Node(_core.ObjectOwner):
    """A recorded operation: `Tensor.grad_fn`, and the nodes before it. Its class has the name of the node."""

    __slots__ = ("__weakref__", "_id")
    _id: int

    def name(self) -> str:
        """Returns the name of the node, such as AddBackward0."""
        return title(_core.bind_NodeName(self._h))

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes to which the gradients of the inputs go, and which of their outputs the inputs are."""
        n = _core.bind_NodeEdges(self._h)
        return tuple((node_of(_core.bind_NodeEdge(self._h, i)), _core.bind_NodeEdgeIndex(self._h, i)) for i in range(n))

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict of the caller's, which lives as long as the node."""
        with _making:
            found = _metadata.get(self._id)
            if found is None:
                collect()
                found = _metadata[self._id] = _Metadata()
                check(_core.bind_NodeOwn(self._h, keep(found)))
            return found

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_inputs, grad_outputs)` after the node in backward; what it returns replaces `grad_inputs`."""
        return self._register(fn, True)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_outputs)` before the node in backward; what it returns replaces `grad_outputs`."""
        return self._register(fn, False)

    def _register(self, fn: Callable[..., Any], after: bool) -> RemovableHandle:
        collect()
        return EngineHook(check(_core.bind_NodeHookAdd(self._h, keep(fn), after)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # What the context of a custom function holds is the node's.
            key = 0 if name.startswith("__") or name in ("_h", "_id") else _core.bind_NodeKey(self._h)
            context = kept(key).ctx if key else None
            if context is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(context, name)


class _Metadata(dict[Any, Any]):
    """A dict that may be referred to weakly."""


_nodes: WeakValueDictionary[int, Node] = WeakValueDictionary()
_making = threading.RLock()  # a finaliser may come to it on the same thread
_metadata: WeakValueDictionary[int, _Metadata] = WeakValueDictionary()  # kept for the engine, until it drops them


@functools.cache
def _class(name: str) -> type[Node]:
    return type(name, (Node,), {"__slots__": (), "__module__": "plait.autograd"})


def node_of(h: int) -> Node | None:
    """Returns the node that a handle of the engine names, the same object each time, and takes the handle over."""
    if check(h) == 0:
        return None
    number = _core.bind_NodeID(h)
    with _making:
        found = _nodes.get(number)
        if found is not None:
            _core.bind_ObjectRelease(h)
            return found
        made = object.__new__(_class(title(_core.bind_NodeName(h))))
        made._h, made._id = h, number
        _nodes[number] = made
        return made


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor flows: output `output_nr` of a node. Stands for the tensor in backward passes."""

    node: Node
    output_nr: int
    ownership_token: Any = None

    def stand(self) -> Tensor:
        """Returns a tensor that stands for the edge in a pass."""
        return own(check(_core.bind_EdgeTensor(self.node._h, self.output_nr)))


def after(run: int) -> tuple[Tensor | None, ...]:
    """Returns the gradients of outputs for a hook that runs after its node."""
    buffer = array("q", bytes(8 * _core.bind_BackwardAfterCount(run)))
    check(_core.bind_BackwardAfter(run, address(buffer)))
    return tuple(own(h) if h else None for h in buffer)
