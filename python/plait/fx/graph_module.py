"""Modules whose `forward` is generated from a graph."""

from __future__ import annotations

import copy
from typing import Any

from plait._tensor import Tensor
from plait.fx import _codegen
from plait.fx._codegen import PythonCode, PyTreeCodeGen
from plait.fx._names import top
from plait.fx.graph import Graph
from plait.fx.proxy import forget_proxies
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_REMINDER = "# To see more debug info, please use `graph_module.print_readable()`"


class _CodeOnlyModule(Module):
    """A module that has what another's dict has."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Gives a module an attribute of another's, by its dotted name, and the modules on the way there."""
    *prefix, field = target.split(".")
    for item in prefix:
        source, goal = getattr(from_module, item), getattr(to_module, item, None)
        if source is goal:
            return  # it is all there
        if goal is None:
            goal = Module()
            setattr(to_module, item, goal)
        from_module, to_module = source, goal
    value = getattr(from_module, field)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        persistent = field not in from_module._non_persistent_buffers_set
        if field in to_module.__dict__.get("_buffers", {}):
            setattr(to_module, field, value)
        else:
            to_module.register_buffer(field, value, persistent)
    else:
        setattr(to_module, field, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Gives a module an attribute, by its dotted name, and the modules on the way there."""
    *prefix, field = target.split(".")
    for item in prefix:
        goal = getattr(to_module, item, None)
        if goal is None:
            goal = Module()
            setattr(to_module, item, goal)
        to_module = goal
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(field, value)
    else:
        setattr(to_module, field, value)


class GraphModule(Module):
    """A module made of a graph: it has the graph's parameters, buffers and modules, and a `forward` generated from it.

    Each has a class of its own. It is trained, saved, copied and pickled as other modules are; nodes' `meta` is copied
    and not pickled.

    Args:
        root: the module that has what the graph's nodes name, or a dict of that by dotted names
        graph: what it computes
        class_name: its name where it is shown

    Raises:
        RuntimeError: if the root lacks what a node names.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """Makes an object of a class of its own, which its `forward` belongs to."""
        base = next(c for c in cls.__mro__ if "_is_made" not in vars(c))

        class GraphModuleImpl(base):  # type: ignore[valid-type,misc]
            _is_made = True

        GraphModuleImpl.__module__ = base.__module__
        return super().__new__(GraphModuleImpl)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for target in targets:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for target in targets:
                if target not in root:
                    raise RuntimeError(f"GraphModule: a node names {target!r}, which the root does not have")
            for target in sorted(dict.fromkeys(targets), key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"GraphModule: root must be a module or a dict, got {type(root).__name__}")
        self.graph = graph
        self._tracer_cls = None
        if graph._tracer_cls is not None and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        self.meta: dict[str, Any] = {}

    @property
    def graph(self) -> Graph:
        """What the module computes. Assign another, or change this one and call `recompile`."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"GraphModule.graph: want a Graph, got {type(g).__name__}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source text of `forward`."""
        return self._code

    def recompile(self) -> PythonCode:
        """Generates `forward` from the graph anew, and returns its code. Call it after changes of the graph."""
        forget_proxies()  # a trace has ended, as a rule
        if isinstance(codegen := self._graph._codegen, PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        code = self._graph.python_code("self")
        self._code = code.src
        type(self).forward = _codegen.function_of(code)  # type: ignore[method-assign]
        return code

    # --- modules below ---

    def add_submodule(self, target: str, m: Module) -> bool:
        """Adds a module under a dotted name, and those on the way there.

        Returns:
            False, and does nothing, where something else than a module is in the way.
        """
        *prefix, field = target.split(".")
        owner: Module = self
        for item in prefix:
            below = getattr(owner, item, None)
            if below is None:
                below = Module()
                setattr(owner, item, below)
            if not isinstance(below, Module):
                return False
            owner = below
        owner.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Removes the module of a dotted name, and returns whether there was one."""
        *prefix, field = target.split(".")
        owner: Any = self
        for item in prefix:
            owner = getattr(owner, item, None)
            if not isinstance(owner, Module):
                return False
        if not isinstance(getattr(owner, field, None), Module):
            return False
        delattr(owner, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Removes the modules that no node names, and of which none below is named."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
            below: Any = self
            for part in parts:
                below = getattr(below, part, None)
            if node.op == "call_module" and isinstance(below, Module):
                used.update(f"{node.target}.{n}" for n, _ in below.named_modules() if n)
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        return _restored(made, copy.deepcopy(self.__dict__, memo), type(self).__name__)

    def __copy__(self) -> Any:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = getattr(self, "meta", {})
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        base = next(c for c in type(self).__mro__ if "_is_made" not in vars(c))
        return _unpickled, (base, self.__dict__.copy(), type(self).__name__)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    # --- text ---

    def _get_name(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        return f"{super().__repr__()}\n{self._code}\n{_REMINDER}"

    def print_readable(self, print_output: bool = True, **shown: Any) -> str:
        """Prints the module as a class with its code, with those below that have graphs, and returns that text.

        Args:
            print_output: False to return the text only
            shown: other choices of PyTorch's, which have no effect
        """
        text = self._readable()
        if print_output:
            print(text)
        return text

    def _readable(self) -> str:
        code = self._graph.python_code("self", verbose=True).src.lstrip("\n").rstrip() + "\n"
        lines = [f"class {self._get_name()}({top()[0]}.nn.Module):", *(f"    {x}" for x in code.splitlines()), ""]
        below = [m._readable() for m in self.children() if isinstance(m, GraphModule)]
        for text in below:
            lines += ["", *(f"    {x}" if x else x for x in text.splitlines()), ""]
        return "\n".join(lines)


def _restored(made: Any, state: dict[str, Any], name: str) -> Any:
    made.__dict__.update(state)
    type(made).__name__ = name
    if "_graph" in state:
        made.graph = state["_graph"]
    return made


def _unpickled(base: type[GraphModule], state: dict[str, Any], name: str) -> Any:
    return _restored(base.__new__(base), state, name)
