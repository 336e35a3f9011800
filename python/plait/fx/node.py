"""Nodes: the operations of a graph, and the walk through the arguments that name them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import plait
from plait import profiler as _profiler
from plait._dtype import dtype as DType
from plait._functions import checks as _checks
from plait.fx._names import qualified_name, shown
from plait.fx.immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from plait.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any  # a node, a constant, or tuples, lists, dicts and slices of them
F = TypeVar("F", bound=Callable[..., Any])

OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output")

_side_effectful_functions: set[Callable[..., Any]] = {
    f for n, f in vars(_checks).items() if n.startswith(("_assert", "_check")) and callable(f)
}
_side_effectful_functions |= {_profiler._record_function_enter, _profiler._record_function_exit}


def has_side_effect(fn: F) -> F:
    """Says, for the process, that a function does more than return a value: calls of it are never dead code."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """Returns `a` with `fn` applied to all that is no tuple, list, dict or slice, in those and in what is in them."""
    if isinstance(a, tuple):
        parts = [map_aggregate(x, fn) for x in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """Returns `a` with `fn` applied to the nodes in it."""
    if not callable(fn):
        raise TypeError(f"map_arg: fn must be callable, got {type(fn).__name__}")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def _listed(arg: Any) -> str:
    """Returns an argument as a listing of the graph shows it."""
    if isinstance(arg, Node):
        return f"%{arg}"
    if isinstance(arg, list):
        return f"[{', '.join(map(_listed, arg))}]"
    if isinstance(arg, tuple) and not hasattr(arg, "_fields"):
        return f"({', '.join(map(_listed, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_listed(v)}" for k, v in arg.items()) + "}"
    return shown(arg) if isinstance(arg, DType) else str(arg)


class Node:
    """One operation of a graph.

    | op | target | args and kwargs |
    |---|---|---|
    | `placeholder` | the argument's name | its default, if it has one |
    | `get_attr` | the attribute's dotted name in the root module | none |
    | `call_function` | the function | the call's |
    | `call_module` | the module's dotted name | the call's, without self |
    | `call_method` | the method's name | the call's, self first |
    | `output` | `"output"` | the returned value |

    Attributes:
        graph: that the node belongs to
        name: the variable in generated code
        users: the nodes that use it; the keys of a dict, in the order of first use
        type: the annotation of the value, or None
        meta: what passes note of it; a dict
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any | None = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"Node: op must be one of {', '.join(OPS)}, got {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} must be a callable function")
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} must be a string for {op}")
        self.graph = graph
        self.name = name
        self.op = op
        self.target: Any = target
        self.users: dict[Node, None] = {}
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._update(args, kwargs)

    # --- places in the list ---

    @property
    def next(self) -> Node:
        """The node behind this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Moves a node of the same graph to the place before this one."""
        if self.graph is not x.graph:
            raise AssertionError("prepend: both nodes must be in one graph")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Moves a node of the same graph to the place behind this one."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        before, behind = self._prev, self._next
        before._next, behind._prev = behind, before

    def __lt__(self, other: Node) -> bool:
        """Whether the node comes before another of its graph."""
        for n in self.graph.nodes:
            if n is other:
                return False
            if n is self:
                return True
        return False

    def __gt__(self, other: Node) -> bool:
        return other < self

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or other < self

    # --- arguments ---

    @property
    def args(self) -> tuple[Argument, ...]:
        """The arguments by position. Assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._update(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name. Assign a new dict to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._update(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in the arguments, each once, in order."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replaces an argument by position."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Puts an argument before the one at a position."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError(f"insert_arg: index {idx} must be between 0 and {len(self.args)}")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replaces an argument by name, or adds it."""
        self.kwargs = {**self.kwargs, key: arg}

    def _update(self, args: Any, kwargs: Any) -> None:
        if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
            kinds = f"{type(args).__name__} and {type(kwargs).__name__}"
            raise TypeError(f"Node: args must be a tuple and kwargs a dict, got {kinds}")
        for old in self._input_nodes:
            old.users.pop(self, None)
        found: dict[Node, None] = {}
        self._args = map_aggregate(tuple(args), lambda x: _noted(x, found))
        self._kwargs = map_aggregate(dict(kwargs), lambda x: _noted(x, found))
        self._input_nodes = found
        for new in found:
            new.users.setdefault(self)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Puts another node in this one's place in the arguments of all its users.

        Args:
            replace_with: the other node
            delete_user_cb: says of each user whether it is to change
            propagate_meta: take this node's `meta` over, which the other must not have any of

        Returns:
            the users that have changed.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError("replace_all_uses_with: propagate_meta wants a node without meta")
            replace_with.meta.update(self.meta)
        changed = [u for u in self.users if delete_user_cb is None or delete_user_cb(u)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Puts a node in another's place in the arguments."""
        args = map_arg(self.args, lambda n: new_input if n is old_input else n)
        kwargs = map_arg(self.kwargs, lambda n: new_input if n is old_input else n)
        self._update(args, dict(kwargs))

    # --- facts ---

    @property
    def stack_trace(self) -> str | None:
        """Where the operation was traced, if a tracer has noted it in `meta`."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does more than compute a value, so that it stays where nothing uses it.

        Those are placeholders and the output, functions that `has_side_effect` names, operations in place, those with
        `out`, and modules whose `_is_impure` is true; random ones if `impure_random`.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op in ("call_function", "call_method"):
            if self.kwargs.get("inplace") is True or self.kwargs.get("out") is not None:
                return True
            if self.target in _side_effectful_functions:
                return True
            name = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", "")
            if name in ("setitem", "__setitem__"):
                return True
            ours = self.op == "call_method" or f"{getattr(self.target, '__module__', '')}.".startswith("plait.")
            if ours and name[-1:] == "_" and name[-2:] != "__" and name not in ("and_", "or_", "not_", "is_"):
                return True
            return impure_random and self.target in _random()
        if self.op == "call_module":
            module: Any = self.graph.owning_module
            if module is None:
                raise AssertionError("is_impure: a node that calls a module must be in the graph of a GraphModule")
            return getattr(module.get_submodule(self.target), "_is_impure", False)
        return False

    def _pretty_target(self) -> str:
        if isinstance(self.target, str):
            return self.target
        return qualified_name(self.target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """Returns the node as the listing of a graph shows it.

        Args:
            placeholder_names: collects the names of placeholders, in place of a line of the listing
            maybe_return_typename: collects the annotation of the output
            include_tensor_metadata: also shows the shape and dtype that `ShapeProp` noted
        """
        kind = "" if self.type is None else f"{type_name(self.type)} "
        about = f"[num_users={len(self.users)}]"
        if include_tensor_metadata and (facts := self.meta.get("tensor_meta")) is not None:
            about += f"({facts.dtype}{list(facts.shape)})" if hasattr(facts, "shape") else ""
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target}" + (f": {kind.strip()}" if kind else ""))
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : {kind}{about} = {self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : {kind}{about} = {self.op}[target={self._pretty_target()}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        args, kwargs = _listed(self.args), _listed(self.kwargs)
        target = self._pretty_target()
        return f"%{self.name} : {kind}{about} = {self.op}[target={target}](args = {args}, kwargs = {kwargs})"

    def _rename(self, candidate: str) -> None:
        """Gives the node a name like the candidate."""
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace.rename(self, self.name)

    def __repr__(self) -> str:
        return self.name


def _noted(x: Any, found: dict[Node, None]) -> Any:
    if isinstance(x, Node):
        found.setdefault(x)
    return x


def _random() -> tuple[Any, ...]:
    return (
        plait.rand, plait.randn, plait.randint, plait.randperm, plait.bernoulli, plait.binomial, plait.multinomial,
        plait.normal, plait.poisson,
    )  # fmt: skip


def type_name(kind: Any) -> str:
    """Returns an annotation as code writes it."""
    if kind is Ellipsis:
        return "..."
    if kind is type(None):
        return "None"
    if isinstance(kind, type) and not hasattr(kind, "__origin__") and type(kind).__name__ != "GenericAlias":
        if kind.__module__ == "builtins":
            return kind.__qualname__
        return inspect.formatannotation(kind) if not kind.__module__.startswith("plait") else qualified_name(kind)
    return repr(kind)
