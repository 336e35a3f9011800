"""Replacing one small graph by another wherever it is in a module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from plait.fx._symbolic_trace import symbolic_trace
from plait.fx.graph import Graph
from plait.fx.graph_module import GraphModule, _assign_attr
from plait.fx.node import Node
from plait.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from plait.nn.modules.module import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Source = Callable[..., Any] | Graph | GraphModule
Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """A place where a pattern was: the pattern's node it was found from, and the graph's nodes by the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A place where a pattern was, as `Match` says, and the nodes that are in its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Source, replacement: Source) -> list[Match]:
    """Replaces a pattern by another wherever it is in a module's graph, and recompiles the module.

    Both are traced if they are functions. They must have equally many arguments and results. Places that overlap one
    before, or whose inner values are used outside, stay as they are.

    Args:
        gm: the module, which is changed
        pattern: what is looked for
        replacement: what takes its place; a module's parameters and modules are copied into `gm`

    Returns:
        where the pattern was.
    """
    done = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(m.anchor, m.nodes_map) for m in done]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Source,
    replacement: Source | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Does what `replace_pattern` does, at the places that all filters accept.

    Args:
        gm: the module, which is changed
        pattern: what is looked for
        replacement: what takes its place
        match_filters: each is called with the match, the module's graph and the pattern's
        ignore_literals: constants match any others
        replacement_callback: in the place of `replacement`: returns it for a match
        node_name_match: part of the name of nodes that the pattern may end in
    """
    pattern_graph = _graph_of(pattern)
    if (replacement is None) == (replacement_callback is None):
        raise ValueError("replace_pattern_with_filters: want either replacement or replacement_callback")
    fixed = None if replacement is None else _graph_of(replacement)
    matcher = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals)
    changed: dict[Node, Node] = {}
    out = []
    for match in matcher.match(gm.graph, node_name_match):
        if not all(f(match, gm.graph, pattern_graph) for f in match_filters or ()):
            continue
        new = fixed if replacement_callback is None else replacement_callback(match, gm.graph, pattern_graph)
        assert new is not None
        out.append(_replace(gm.graph, match, pattern_graph, new, changed))
    gm.recompile()
    if isinstance(replacement, Module):
        _take_attributes(gm, replacement)
    return out


def _graph_of(source: Source) -> Graph:
    if isinstance(source, GraphModule):
        return source.graph
    return source if isinstance(source, Graph) else symbolic_trace(source).graph


def _replace(
    graph: Graph, match: InternalMatch, pattern: Graph, replacement: Graph, changed: dict[Node, Node]
) -> ReplacedPatterns:
    """Puts a replacement in the place of a match; `changed` has what earlier ones put in the place of nodes."""
    given = [n for n in replacement.nodes if n.op == "placeholder"]
    if len(given) != len(match.placeholder_nodes):
        raise AssertionError(
            f"replace_pattern: the pattern has {len(match.placeholder_nodes)} arguments, the replacement {len(given)}"
        )
    inputs = [changed.get(g, g) if isinstance(g, Node) else g for g in match.placeholder_nodes]
    val_map: dict[Node, Any] = dict(zip(given, inputs, strict=True))
    known = set(graph.nodes)
    with graph.inserting_before(_place(graph, match, [n for n in inputs if isinstance(n, Node)])):
        copied = graph.graph_copy(replacement, val_map)
    results = [copied] if isinstance(copied, Node) else list(copied or ())
    if len(results) != len(match.returning_nodes):
        raise AssertionError(
            f"replace_pattern: the pattern has {len(match.returning_nodes)} results, the replacement {len(results)}"
        )
    for old, new in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(new)
        changed[old] = new
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    made = [n for n in graph.nodes if n not in known]
    return ReplacedPatterns(match.anchors[0], match.nodes_map, made)


def _place(graph: Graph, match: InternalMatch, inputs: list[Node]) -> Node:
    """Returns the node before which a replacement goes: the first user of a result, when all inputs are there.

    Users of a result that come before an input move behind it: they cannot be what it is made of.
    """
    own = {g for p, g in match.nodes_map.items() if p.op not in ("placeholder", "output")}
    order = list(graph.nodes)
    places = {n: i for i, n in enumerate(order)}
    behind = max((places[n] for n in inputs), default=-1)
    late: set[Node] = set()
    for node in order[: behind + 1]:
        if node not in own and any(n in late or n in match.returning_nodes for n in node.all_input_nodes):
            late.add(node)
    for node in reversed([n for n in order if n in late]):
        order[behind].append(node)
    users = {u for r in match.returning_nodes for u in r.users if u not in own}
    return next((n for n in graph.nodes if n in users), None) or graph.output_node()


def _take_attributes(gm: GraphModule, replacement: Module) -> None:
    """Copies what nodes name, and the module does not have, from a replacement."""
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _get(gm, node.target) is not None:
            continue
        value = _get(replacement, node.target)
        if value is None:
            raise RuntimeError(f"replace_pattern: neither module has {node.target!r}, which node {node} names")
        _assign_attr(copy.deepcopy(value), gm, node.target)
    gm.graph.lint()


def _get(owner: Any, target: str) -> Any:
    for part in target.split("."):
        owner = getattr(owner, part, None)
    return owner
