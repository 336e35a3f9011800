"""Finding a small graph in a large one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plait.fx.graph import Graph
from plait.fx.node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """A place where a pattern is in a graph.

    Attributes:
        anchors: the pattern's nodes from which it was found
        nodes_map: the graph's nodes, or constants for placeholders, by the pattern's
        placeholder_nodes: those for the pattern's placeholders, in order
        returning_nodes: those for what it returns, in order
        name_node_map: the graph's nodes by the names of the pattern's
    """

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Finds a pattern in graphs: operations with the same targets, and arguments that match.

    A placeholder of the pattern matches any value, and the same one wherever it is used. What only the pattern's inside
    makes must not be used outside.

    Args:
        pattern: the graph to find
        match_output: its output must be the graph's
        match_placeholder: its placeholders match placeholders only
        remove_overlapping_matches: leave out those that share operations with one before
        ignore_literals: constants match any others
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher: the pattern is empty")
        output = pattern.output_node()
        for node in pattern.nodes:
            if node.op not in ("placeholder", "output") and not node.users:
                raise ValueError(f"SubgraphMatcher: nothing in the pattern uses {node}; dead code cannot be matched")
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        self.pattern_returning_nodes = output.all_input_nodes
        inner = [n for n in self.pattern_returning_nodes if len(n.users) == 1]
        self.pattern_anchors = [output] if match_output else inner

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Returns where the pattern is in a graph, in the graph's order.

        Args:
            graph: to look into
            node_name_match: part of the name of nodes that matches may end in
        """
        places = {n: i for i, n in enumerate(graph.nodes)}
        wanted = []
        for anchor in self.pattern_anchors:
            wanted.append([n for n in graph.nodes if self._same(anchor, n) and node_name_match in n.name])
        found = []
        for maps in self._combined(wanted, 0, {}, {}):
            m = InternalMatch(list(self.pattern_anchors), dict(maps))
            m.placeholder_nodes = [maps.get(n) for n in self.pattern_placeholder_nodes]
            m.returning_nodes = [maps[n] for n in self.pattern_returning_nodes]
            m.name_node_map = {n.name: maps[n] for n in self.pattern.nodes if n in maps}
            if self._is_contained(m) and self._is_convex(m, places):
                found.append(m)
        if not self.remove_overlapping_matches:
            return found
        taken: set[Node] = set()
        out = []
        for m in found:
            own = {g for p, g in m.nodes_map.items() if p.op not in ("placeholder", "output")}
            if not own & taken:
                taken |= own
                out.append(m)
        return out

    def _combined(
        self, wanted: list[list[Node]], i: int, maps: dict[Node, Any], owners: dict[Node, Node]
    ) -> Iterator[dict[Node, Any]]:
        """Yields the maps in which all anchors from the i-th on match."""
        if i == len(wanted):
            yield maps
            return
        for node in wanted[i]:
            m, o = dict(maps), dict(owners)
            if self._nodes_match(self.pattern_anchors[i], node, m, o):
                yield from self._combined(wanted, i + 1, m, o)

    def _same(self, p: Node, g: Node) -> bool:
        if p.op == "placeholder" and not self.match_placeholder:
            return True
        if p.op != g.op:
            return False
        if p.op in ("placeholder", "output"):
            return True
        if p.op == "get_attr":
            first, second = _attribute(p), _attribute(g)
            known = first is not None and second is not None
            return type(first) is type(second) if known else bool(p.target == g.target)
        return bool(p.target == g.target)

    def _nodes_match(self, p: Node, g: Any, maps: dict[Node, Any], owners: dict[Node, Node]) -> bool:
        if p in maps:
            return maps[p] is g or (not isinstance(g, Node) and not isinstance(maps[p], Node) and _equal(maps[p], g))
        if not isinstance(g, Node):  # a constant
            if p.op != "placeholder" or self.match_placeholder:
                return False
            maps[p] = g
            return True
        if g in owners or not self._same(p, g):
            return False
        maps[p] = g
        owners[g] = p
        if p.op == "placeholder":
            return True
        return self._arguments_match(p, g, maps, owners)

    def _arguments_match(self, p: Node, g: Node, maps: dict[Node, Any], owners: dict[Node, Node]) -> bool:
        if p.op == "get_attr":
            return True
        first, second = (_by_name(n) for n in (p, g))
        if first is None or second is None:
            first, second = (list(p.args), dict(p.kwargs)), (list(g.args), dict(g.kwargs))
        return self._values_match(first[0], second[0], maps, owners) and self._values_match(
            first[1], second[1], maps, owners
        )

    def _values_match(self, p: Any, g: Any, maps: dict[Node, Any], owners: dict[Node, Node]) -> bool:
        if isinstance(p, Node):
            return self._nodes_match(p, g, maps, owners)
        if isinstance(g, Node):
            return False
        if isinstance(p, dict):
            same = isinstance(g, dict) and p.keys() == g.keys()
            return same and all(self._values_match(p[k], g[k], maps, owners) for k in p)
        if isinstance(p, list | tuple):
            same = isinstance(g, list | tuple) and len(p) == len(g)
            return same and all(self._values_match(a, b, maps, owners) for a, b in zip(p, g, strict=True))
        if isinstance(p, slice):
            first, second = ((s.start, s.stop, s.step) if isinstance(s, slice) else None for s in (p, g))
            return self._values_match(first, second, maps, owners)
        return self.ignore_literals or _equal(p, g)

    def _is_contained(self, m: InternalMatch) -> bool:
        """Whether nothing outside uses what the pattern does not return."""
        own = {g for g in m.nodes_map.values() if isinstance(g, Node)}
        free = set(m.returning_nodes)
        for p, g in m.nodes_map.items():
            if p.op in ("placeholder", "output") or g in free:
                continue
            if any(u not in own for u in g.users):
                return False
        return True

    def _is_convex(self, m: InternalMatch, places: dict[Node, int]) -> bool:
        """Whether no operation outside lies between two of the match's."""
        own = {g for p, g in m.nodes_map.items() if p.op not in ("placeholder", "output")}
        last = max((places[g] for g in own), default=-1)
        todo = [u for g in own for u in g.users if u not in own]
        seen: set[Node] = set()
        while todo:
            node = todo.pop()
            if node in seen or places[node] > last:
                continue
            seen.add(node)
            if any(u in own for u in node.users):
                return False
            todo += node.users
        return True


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _attribute(node: Node) -> Any:
    """Returns the value that a node reads from the module, or None where it has none."""
    value: Any = node.graph.owning_module
    for part in node.target.split("."):
        value = getattr(value, part, None)
    return value


def _by_name(node: Node) -> tuple[list[Any], dict[str, Any]] | None:
    """Returns a function's arguments all by name, so that it matters not how they were passed; None if unknown."""
    if node.op != "call_function":
        return None
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    return [], dict(bound.arguments)
