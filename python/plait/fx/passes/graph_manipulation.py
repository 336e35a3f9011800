"""Small changes of graphs."""

from __future__ import annotations

from typing import Any

from plait.fx.graph import Graph
from plait.fx.graph_module import GraphModule
from plait.fx.node import Node, Target, map_arg

__all__ = ["replace_target_nodes_with"]


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:
    """Makes the nodes of one kind and target those of others, with the same arguments.

    Args:
        fx_module: the module, which is changed
        old_op: the kind of the nodes
        old_target: their target
        new_op: the kind that they become
        new_target: and the target
    """
    graph = Graph(tracer_cls=fx_module.graph._tracer_cls)
    copied: dict[Node, Any] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args, kwargs = (map_arg(a, lambda n: copied[n]) for a in (node.args, node.kwargs))
            copied[node] = graph.create_node(new_op, new_target, args, dict(kwargs), node.name)
        else:
            copied[node] = graph.node_copy(node, lambda n: copied[n])
    fx_module.graph = graph
