"""Dividing a module's graph into modules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from plait.fx.graph import Graph
from plait.fx.graph_module import GraphModule
from plait.fx.node import Node, map_arg
from plait.nn.modules.module import Module

__all__ = ["split_module"]


class _Part:
    """One of the modules: its nodes, what comes into it and what goes out of it, in order, and whom it waits for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.waits: dict[str, None] = {}


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """Divides a module into modules `submod_0`, `submod_1`, ..., and returns the module that calls them.

    Parameters and buffers that the graph reads stay with the caller, which passes them on.

    Args:
        m: the module
        root_m: the module that it was traced from, which has what its nodes name
        split_callback: returns for a node the number, or name, of the module that it goes to
        qualname_map: takes the names that modules had by those that they get
        keep_original_order: call the modules in the order in which they begin, not in any that is possible
        keep_original_node_name: nodes have the names they had
        keep_original_input_name: inputs of the modules have the names of the nodes that they come from
        partition_affix: comes before the number in the modules' names
        tuple_return: each module returns a tuple, also of one value

    Raises:
        RuntimeError: if two of them would need each other's results.
    """
    affix = f"{partition_affix}_" if partition_affix else ""
    parts: dict[str, _Part] = {}
    where: dict[Node, str] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        name = where[node] = str(split_callback(node))
        parts.setdefault(name, _Part(f"submod_{affix}{name}")).nodes.append(node)
    for node in m.graph.nodes:
        for used in node.all_input_nodes:
            source, goal = where.get(used), where.get(node)
            if source == goal:
                continue
            if source is not None:
                parts[source].outputs.setdefault(used)
            if goal is not None:
                parts[goal].inputs.setdefault(used)
                if source is not None:
                    parts[goal].waits.setdefault(source)
    graph = Graph(tracer_cls=m.graph._tracer_cls)
    outer: dict[Node, Node] = {}
    for op in ("placeholder", "get_attr"):
        for node in m.graph.nodes:
            if node.op == op:
                outer[node] = graph.node_copy(node)
    attributes: dict[str, Any] = {n.target: _get(root_m, n.target) for n in m.graph.nodes if n.op == "get_attr"}
    for name in _sorted(parts, bool(keep_original_order)):
        part = parts[name]
        attributes[part.name] = _module_of(
            part, root_m, qualname_map, bool(keep_original_node_name), keep_original_input_name, tuple_return
        )
        call = graph.call_module(part.name, tuple(outer[n] for n in part.inputs))
        if len(part.outputs) == 1 and not tuple_return:
            outer[next(iter(part.outputs))] = call
            continue
        for i, made in enumerate(part.outputs):
            outer[made] = graph.call_function(operator.getitem, (call, i))
    for node in m.graph.nodes:
        if node.op == "output":
            graph.output(map_arg(node.args[0], lambda n: outer[n]), node.type)
    made_module = GraphModule(attributes, graph)
    made_module.train(m.training)
    return made_module


def _sorted(parts: dict[str, _Part], original: bool) -> list[str]:
    """Returns the modules' names in an order in which each comes behind those that it waits for."""
    left, out = list(parts), []
    while left:
        ready = next((n for n in left if all(w in out for w in parts[n].waits)), None)
        if ready is None or (original and ready != left[0]):
            raise RuntimeError(f"split_module: cycle exists between partitions! These wait for each other: {left}")
        left.remove(ready)
        out.append(ready)
    return out


def _module_of(
    part: _Part, root: Module, names: dict[str, str] | None, keep_names: bool, keep_inputs: bool, tuples: bool
) -> GraphModule:
    graph = Graph()
    inner: dict[Node, Node] = {}
    for i, node in enumerate(part.inputs):
        inner[node] = graph.placeholder(node.name if keep_inputs else f"arg_{i}", type_expr=node.type)
        inner[node].meta = dict(node.meta)
    targets: dict[str, Any] = {}
    for node in part.nodes:
        target = node.target
        if node.op == "call_module":
            target = node.target.replace(".", "_")
            targets[target] = _get(root, node.target)
            if names is not None:
                names[f"{part.name}.{target}"] = node.target
        args, kwargs = (map_arg(a, lambda n: inner[n]) for a in (node.args, node.kwargs))
        made = graph.create_node(node.op, target, args, dict(kwargs), node.name if keep_names else None, node.type)
        made.meta = dict(node.meta)
        inner[node] = made
    results = tuple(inner[n] for n in part.outputs)
    graph.output(results[0] if len(results) == 1 and not tuples else results)
    return GraphModule(targets, graph)


def _get(owner: Any, target: str) -> Any:
    for part in target.split("."):
        owner = getattr(owner, part)
    return owner
