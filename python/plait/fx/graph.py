"""Graphs: lists of nodes in the order in which they run."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from plait.fx import _codegen
from plait.fx._codegen import CodeGen, PythonCode
from plait.fx._names import Namespace, snake_case
from plait.fx.node import Argument, Node, Target, map_aggregate, map_arg

if TYPE_CHECKING:
    from plait.fx.graph_module import GraphModule

__all__ = ["CodeGen", "Graph", "PythonCode"]

_PyTreeCodeGen, _PyTreeInfo = _codegen.PyTreeCodeGen, _codegen.PyTreeInfo  # by PyTorch's names


class _Nodes:
    """The nodes of a graph, in order; nodes may be added and erased while they are walked through."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self.graph = graph
        self.backwards = backwards

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._prev if self.backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self.backwards else node._next  # those of an erased node lead back to the list

    def __reversed__(self) -> _Nodes:
        return _Nodes(self.graph, not self.backwards)


class _InsertPoint:
    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self._graph = graph
        self._before, graph._insert = graph._insert, insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._graph._insert = self._before


class Graph:
    """What a module computes: nodes for its inputs, operations and output, in the order in which they run.

    `symbolic_trace` makes graphs; the methods named as the kinds of nodes add to them. After a change, call `lint`, and
    `recompile` of the module.

    Args:
        owning_module: the module that the graph is of
        tracer_cls: the class of the tracer that makes it
        tracer_extras: what tracers note
    """

    def __init__(
        self,
        owning_module: GraphModule | None = None,
        tracer_cls: type[Any] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "output", "root", (), {})
        self._len = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()

    @property
    def owning_module(self) -> GraphModule | None:
        """The module that the graph is of."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: GraphModule | None) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _Nodes:
        """The nodes, in order."""
        return _Nodes(self)

    def output_node(self) -> Node:
        """Returns the node that returns."""
        return next(n for n in reversed(self.nodes) if n.op == "output")

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """Returns the nodes of one kind, in order.

        Args:
            op: the kind
            target: of the nodes; any for None, but not for functions
            sort: has no effect: nodes are always in order
        """
        if op == "call_function" and target is None:
            raise AssertionError("find_nodes: call_function wants a target")
        found = [n for n in self.nodes if n.op == op]
        return found if target is None else [n for n in found if n.target == target]

    # --- adding ---

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a node at the place where nodes go, the end by default, and returns it.

        Args:
            op: the kind: see `Node`
            target: what is called, or the name of it
            args: by position
            kwargs: by name
            name: of the variable; it is changed where it is taken
            type_expr: the annotation of the value
        """
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            kinds = f"{type(args).__name__} and {type(kwargs).__name__}"
            raise AssertionError(f"create_node: args must be a tuple and kwargs a dict, got {kinds}")
        for n in _nodes_in(args, kwargs):
            if n.graph is not self:
                raise RuntimeError(f"create_node: argument {n} is a node of another graph")
        chosen = self._graph_namespace.create_name(name if name is not None else self._target_to_str(target), None)
        node = Node(self, chosen, op, target, args, kwargs, type_expr)
        self._graph_namespace.rename(node, chosen)
        self._insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target: Target | None) -> str:
        if callable(target):
            op = getattr(target, "__name__", type(target).__name__)
        else:
            op = str(target)
            if op.startswith("__") and op.endswith("__") and len(op) > 4:
                op = op[2:-2]
        return snake_case(op)

    def placeholder(
        self, name: str, type_expr: Any | None = None, default_value: Any = inspect.Signature.empty
    ) -> Node:
        """Adds an argument of the function.

        Args:
            name: of the argument
            type_expr: its annotation
            default_value: none if left out
        """
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """Adds the read of an attribute of the module, by its dotted name; warns if the module has none such."""
        owner: Any = self.owning_module
        if owner is not None and not _has(owner, qualified_name):
            warnings.warn(
                f"get_attr: the module has no attribute {qualified_name!r}; add it, with GraphModule.add_submodule, or "
                "as a parameter or buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a call of a module below, by its dotted name; warns if there is none such."""
        owner: Any = self.owning_module
        if owner is not None and not _has(owner, module_name):
            warnings.warn(
                f"call_module: the module has no module {module_name!r}; add it with GraphModule.add_submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
        name: str | None = None,
    ) -> Node:
        """Adds a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any | None = None) -> Node:
        """Adds the node that returns a result."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Has new nodes go before a node, the first by default, until the `with` block ends."""
        if n is None:
            return self.inserting_after(self._root)
        self._own(n)
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Has new nodes go right behind a node, the last by default, each before the one that came before it."""
        if n is None:
            return self.inserting_before(self._root)
        self._own(n)
        return _InsertPoint(self, n.append)

    def _own(self, n: Node) -> None:
        if n.graph is not self:
            raise AssertionError(f"Node to insert at is not in the graph: {n}")

    # --- copying ---

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """Adds a copy of a node of another graph.

        Args:
            node: that is copied
            arg_transform: returns this graph's node for one of the other's
        """
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument | tuple[Argument, Node] | None:
        """Adds copies of another graph's nodes, but for the output.

        Args:
            g: the other graph
            val_map: nodes of this graph for those of the other that are not to be copied; the copies are added to it
            return_output_node: also return the other graph's output node

        Returns:
            what the other graph returns, in nodes of this one; None if it returns nothing.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        made._codegen = copy(self._codegen)
        copied: dict[Node, Node] = {}
        found: Any = made.graph_copy(self, copied, return_output_node=True)
        if found is not None:
            result, old = found
            node = made.create_node("output", "output", (result,), name=old.name, type_expr=old.type)
            node.meta = dict(old.meta)
            copied[old] = node
        memo[id(self)] = made
        memo.update({id(a): b for a, b in copied.items()})
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Returns what is pickled: the nodes, by their places in the list, without `meta`."""
        place = {n: i for i, n in enumerate(self.nodes)}
        rows = [
            (n.op, n.target, *(map_arg(a, lambda m: _Place(place[m])) for a in (n.args, n.kwargs)), n.name, n.type)
            for n in self.nodes
        ]
        wrapped = [i for n, i in place.items() if n.meta.get("is_wrapped")]
        tracer = self._tracer_cls
        kept = tracer if tracer is not None and "<locals>" not in tracer.__qualname__ else None
        return {"rows": rows, "wrapped": wrapped, "tracer": kept, "codegen": self._codegen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Graph.__init__(self, tracer_cls=state["tracer"])
        self._codegen = state["codegen"]
        made: list[Node] = []
        for op, target, args, kwargs, name, kind in state["rows"]:
            a, k = (_placed(x, made) for x in (args, kwargs))
            made.append(self.create_node(op, target, a, dict(k), name, kind))
        for i in state["wrapped"]:
            made[i].meta["is_wrapped"] = True

    # --- removing ---

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node that has no users.

        Raises:
            RuntimeError: if it has users.
        """
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._update((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes that nothing uses and that do nothing but compute a value.

        Args:
            is_impure_node: says of a node that it does more; by default `Node.is_impure`

        Returns:
            whether there were any.
        """
        self.lint()
        impure = is_impure_node or (lambda n: n.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    # --- checks and text ---

    def lint(self) -> None:
        """Checks that nodes are of this graph, have names of their own and use those before them, and their targets.

        Raises:
            RuntimeError: for what is wrong.
        """
        seen: set[str] = set()
        before: set[Node] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for arg in node.all_input_nodes:
                if arg.graph is not self:
                    raise RuntimeError(f"Argument '{arg}' of Node '{node}' does not belong to this Graph!")
                if arg not in before:
                    raise RuntimeError(f"Argument '{arg}' of Node '{node}' was used before it has been defined!")
            before.add(node)
            if node.name in seen:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node.name)
        owner: Any = self.owning_module
        if owner is None:
            return
        for node in self.nodes:
            if node.op in ("get_attr", "call_module") and not _has(owner, node.target):
                raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute of the module")

    def python_code(self, root_module: str, *, verbose: bool = False, **shown: Any) -> PythonCode:
        """Returns the code of the function that the graph is.

        Args:
            root_module: the name of what has the attributes and modules: `self`
            verbose: note the shapes and dtypes that `ShapeProp` found, and where operations were traced
            shown: other choices of PyTorch's, which have no effect
        """
        return _codegen.python_code(self, root_module, _notes() if verbose else None)

    def on_generate_code(
        self, make_transformer: Callable[[Callable[[list[str]], list[str]] | None], Any]
    ) -> AbstractContextManager[None]:
        """Has a function change the lines of generated code; call the module's `recompile` behind it.

        Args:
            make_transformer: is given the function that changed them so far, or None, and returns the one to use, which
                takes the lines of the body and returns others; None changes nothing

        Returns:
            a context manager at whose end the function that was there before is put back.
        """
        codegen, before = self._codegen, self._codegen._body_transformer
        codegen._body_transformer = make_transformer(before)

        @contextmanager
        def until() -> Iterator[None]:
            try:
                yield
            finally:
                codegen._body_transformer = before

        return until()

    def set_codegen(self, codegen: CodeGen) -> None:
        """Has the code written by an object of a class derived from `CodeGen`."""
        self._codegen = codegen

    def process_inputs(self, *args: Any) -> Any:
        """Returns the values of placeholders for the arguments of a call."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """Returns what a call returns for the value of the output's node."""
        return self._codegen.process_outputs(out)

    def print_tabular(self) -> None:
        """Prints the nodes as a table."""
        head = ["opcode", "name", "target", "args", "kwargs"]
        rows = [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
        for row in [head, ["-" * w for w in widths], *rows]:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *(str(n.format_node()) for n in self.nodes)])


class _Place:
    """Stands for a node in what is pickled of another's arguments."""

    def __init__(self, index: int) -> None:
        self.index = index


def _placed(a: Argument, made: list[Node]) -> Argument:
    return map_aggregate(a, lambda x: made[x.index] if isinstance(x, _Place) else x)


def _nodes_in(*values: Any) -> list[Node]:
    found: list[Node] = []
    map_arg(values, found.append)
    return found


def _has(owner: Any, target: str) -> bool:
    for part in target.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def _notes() -> Callable[[Node], list[str]]:
    """Returns the function that returns comments for a node: a trace where it changes, and what ShapeProp found."""
    last: list[str | None] = [None]

    def note(node: Node) -> list[str]:
        if node.op in ("placeholder", "output"):
            return []
        lines = []
        trace = node.stack_trace or ""
        if trace != last[0]:
            last[0] = trace
            found = [f"# {line}" for line in trace.strip().splitlines()]
            lines = ["", *found] if found else ["# No stacktrace found for following nodes"]
        if (facts := node.meta.get("tensor_meta")) is not None and hasattr(facts, "shape"):
            lines.append(f"# {node.name}: {facts.dtype}{list(facts.shape)}")
        return lines

    return note
