"""Proxies: what stands for a tensor while a module is traced, and notes what is done with it."""

from __future__ import annotations

import dis
import inspect
import operator
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from types import FrameType
from typing import TYPE_CHECKING, Any

from plait import _device, _dtype, _layout
from plait._engine.overriding import OVERRIDING
from plait._engine.warnings import PACKAGE
from plait._tensor import Tensor
from plait.fx._names import public_name
from plait.fx.node import Argument, Node, Target, map_aggregate

if TYPE_CHECKING:
    from plait.fx.graph import Graph

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase"]


class TraceError(ValueError):
    """What tracing cannot follow, as a decision that hangs on a traced value."""


class _OddArgumentError(TypeError):
    """A proxy where a function of the package wants something else; the function looks for it then."""


def _refuse_inside() -> None:
    """Raises an error if a function of the package asks for what a proxy does not have."""
    if sys._getframe(2).f_code.co_filename.startswith(_ENGINE):
        raise _OddArgumentError("symbolically traced variables have no elements or truth that are known")


# The parts of the package whose functions take tensors, and look for proxies where they fail.
_ENGINE = tuple(f"{PACKAGE}{part}" for part in ("_engine", "_functions", "_ops", "_tensor", "fft", "linalg", "special"))

_ITERATED = (
    "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
    "function argument: how often the loop would run is not known when a module is traced. Iterate over what is known, "
    "wrap the function that has the loop with plait.fx.wrap, or make the module that has it a leaf"
)

_CONSTANTS = (
    str, int, float, bool, complex, bytes, type(None), type(Ellipsis), type(NotImplemented), range, Enum,
    _dtype.dtype, _device.device, _layout.Layout, _layout.MemoryFormat,
)  # fmt: skip


class TracerBase:
    """What tracers share: nodes and proxies in a graph, and what proxies ask it.

    Attributes:
        graph: that nodes are added to
        record_stack_traces: note in each node's `meta` where it was traced
        traced_func_name: the method of modules that is traced
    """

    graph: Graph
    record_stack_traces = False
    traced_func_name = "forward"
    param_shapes_constant = False

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a node to the graph and returns it. The arguments have no proxies."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """Returns a proxy for a node's value."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Adds a node, whose arguments may be or hold proxies, and returns a proxy for its value."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        proxy = proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = _user_frames(sys._getframe(1))
        return proxy

    def create_arg(self, a: Any) -> Argument:
        """Returns an argument of a node for a value: nodes in the place of proxies.

        Raises:
            NotImplementedError: for a value of which code cannot be made.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*(self.create_arg(x) for x in a))
        if isinstance(a, tuple | list):
            return [*map(self.create_arg, a)] if isinstance(a, list) else tuple(map(self.create_arg, a))
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, (Node, *_CONSTANTS)) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}: no code can be made of it; want tensors and constants")

    def _key(self, key: Any) -> Any:
        made = self.create_arg(key)

        def refuse(x: Any) -> Any:
            if isinstance(x, Node):
                raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}")
            return x

        map_aggregate(made, refuse)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """What the truth of a proxy is: it is asked for where control flow depends on it."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What a loop over a proxy does; unpacking into a fixed number of names works without it."""
        raise TraceError(_ITERATED)

    def keys(self, obj: Proxy) -> Any:
        """What `obj.keys()` is, as `**obj` asks for it."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds what is done with its proxies to a graph that is there already."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


_lock = threading.Lock()
_made: list[weakref.ref[Proxy]] = []  # the proxies of the process: without any, functions need not look for them


def _begin(proxy: Proxy) -> None:
    """Has functions look for proxies."""
    with _lock:
        _made.append(weakref.ref(proxy))
        OVERRIDING.add(type(proxy))


def forget_proxies() -> None:
    """Has functions look for proxies no more, if there are none, as after most traces."""
    with _lock:
        _made[:] = [r for r in _made if r() is not None]
        if not _made:
            OVERRIDING.difference_update([c for c in tuple(OVERRIDING) if issubclass(c, Proxy)])


class Proxy:
    """Stands for the value of a node: operators, functions and methods that are applied to it are added to the graph.

    Its class overrides functions by `__torch_function__`. What needs a value raises: its truth, its length, a loop over
    it, `int` and `float` of it.

    Args:
        node: whose value it is
        tracer: that adds nodes; by default one that appends to the node's graph
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        _begin(self)
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k == "_h" or (k[:2] == "__" and k[-2:] == "__"):  # the interpreter's questions, and what makes a tensor
            raise AttributeError(f"Proxy has no attribute {k!r}", name=k, obj=self)
        return Attribute(self, k)

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(self.__dict__)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a call of the value."""
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        _refuse_inside()
        count = _unpacked(sys._getframe(1))
        return self.tracer.iter(self) if count is None else (self[i] for i in range(count))  # type: ignore[index]

    def __contains__(self, item: Any) -> bool:
        return item in self.tracer.iter(self)

    def __bool__(self) -> bool:
        _refuse_inside()
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """Returns what the tracer says: `**proxy` asks for it."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        _refuse_inside()
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "plait.fx.wrap('len') at module scope"
        )

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Adds a call of a function to the graph of the proxies among its arguments."""
        kwargs = kwargs or {}
        tracers = {id(p.tracer): p.tracer for p in _proxies_in(args, kwargs)}
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers.values())} while trying to trace operations {function}"
            )
        (tracer,) = tracers.values()
        if not public_name(function) and getattr(Tensor, function.__name__, None) is function:
            return tracer.create_proxy("call_method", function.__name__, args, kwargs)
        return tracer.create_proxy("call_function", function, *_as_passed_on(function, args, kwargs))


class Attribute(Proxy):
    """An attribute of a proxy: a call of it is a call of a method, and any other use reads it."""

    def __init__(self, root: Proxy, attr: str) -> None:
        _begin(self)
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute, which is added when it is first asked for."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a call of the method."""
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter: its shape is known, where the tracer was made with `param_shapes_constant`."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's shape."""
        return self.param.shape

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return self.param.ndim

    def size(self, *dim: int) -> Any:
        """Returns its shape, or one size."""
        return self.param.size(*dim)

    def dim(self) -> int:
        """Returns the number of its dimensions."""
        return self.param.dim()

    def numel(self) -> int:
        """Returns the number of its elements."""
        return self.param.numel()

    def nelement(self) -> int:
        """Returns the number of its elements."""
        return self.param.numel()


def _install_operators() -> None:
    def applied(target: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: args[0].tracer.create_proxy("call_function", target, args, {})

    def reflected(target: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, other: self.tracer.create_proxy("call_function", target, (other, self), {})

    names = "add sub mul floordiv truediv mod matmul pow lshift rshift and_ or_ xor"
    for name in names.split():
        plain, target = name.rstrip("_"), getattr(operator, name)
        setattr(Proxy, f"__{plain}__", applied(target))
        setattr(Proxy, f"__r{plain}__", reflected(target))
    for name in ["eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert", "abs", "getitem"]:
        setattr(Proxy, f"__{name}__", applied(getattr(operator, name)))
    for name, function in (("divmod", divmod), ("round", round)):
        setattr(Proxy, f"__{name}__", applied(function))
    Proxy.__rdivmod__ = reflected(divmod)  # type: ignore[attr-defined]


_install_operators()
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign,assignment]


def _proxies_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Proxy]:
    found: list[Proxy] = []

    def note(x: Any) -> Any:
        if isinstance(x, Proxy):
            found.append(x)
        return x

    map_aggregate((args, kwargs), note)
    return found


def find_proxy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy | None:
    """Returns a proxy among arguments, and what is in them, or None."""
    found = _proxies_in(args, kwargs)
    return found[0] if found else None


def _unpacked(frame: FrameType) -> int | None:
    """Returns into how many names a frame unpacks what it iterates over; None if it does something else."""
    code, i = frame.f_code.co_code, frame.f_lasti
    if i < 0 or dis.opname[code[i]] != "UNPACK_SEQUENCE":
        return None
    return next(x.arg for x in dis.get_instructions(frame.f_code) if x.offset == i)


# Functions of `nn.functional` that in PyTorch take their arguments as they were passed: they are written in C++ there.
_AS_CALLED = {
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "elu_", "gelu", "hardshrink",
    "hardtanh_", "leaky_relu_", "linear", "logsigmoid", "native_channel_shuffle", "one_hot", "pairwise_distance",
    "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "relu_", "rrelu_", "scaled_dot_product_attention", "selu_",
    "sigmoid", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold_",
}  # fmt: skip


def _as_passed_on(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments as PyTorch's functions of layers pass them on: those with defaults by name, all of them."""
    name = public_name(function)
    if not name.startswith("plait.nn.functional.") or name.rpartition(".")[2] in _AS_CALLED:
        return args, kwargs
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return args, kwargs  # the call fails where it is run
    bound.apply_defaults()
    out_args: list[Any] = []
    out_kwargs: dict[str, Any] = {}
    for p in bound.signature.parameters.values():
        value = bound.arguments[p.name]
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            return args, kwargs
        if p.default is p.empty and p.kind is not p.KEYWORD_ONLY:
            out_args.append(value)
        else:
            out_kwargs[p.name] = value
    return tuple(out_args), out_kwargs


def _user_frames(frame: FrameType | None) -> str:
    """Returns the lines of a traceback for the frames outside this package, the innermost last."""
    lines = [f for f in traceback.extract_stack(frame) if not f.filename.startswith(PACKAGE)]
    return "".join(traceback.format_list(lines)).strip()
