"""Running a graph node by node, and making another of it in that way."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from plait.fx._symbolic_trace import Tracer
from plait.fx.graph import Graph
from plait.fx.graph_module import GraphModule
from plait.fx.node import Argument, Node, Target, map_aggregate, map_arg
from plait.fx.proxy import Proxy
from plait.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a module's graph node by node. A derived class changes what a kind of node does.

    Args:
        module: whose graph, parameters and modules they are
        garbage_collect_values: drop each value after its last use
        graph: another graph to run, with what the module has

    Attributes:
        env: the values, by node
        name: of the module
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = module.graph if graph is None else graph  # type: ignore[assignment]
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for user in reversed(self.graph.nodes):
                last = [n for n in user.all_input_nodes if n not in seen]
                seen.update(last)
                self.user_to_last_uses[user] = last

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Runs the graph and returns its result.

        Args:
            args: of the module
            initial_env: values of nodes that are not to be run
            enable_io_processing: have the graph's `CodeGen` process the arguments and the result
        """
        self.env = dict(initial_env or {})
        self.args_iter = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback and hasattr(error, "add_note"):
                    error.add_note(f"While executing {node.format_node()}")
                raise
            for n in self.user_to_last_uses.get(node, ()):
                self.env.pop(n, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Runs the graph with the arguments in a list, which it empties, so that they can be freed early."""
        args = tuple(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """Runs one node and returns its value."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the next argument of the run, or the default.

        Raises:
            RuntimeError: if there is neither.
        """
        if isinstance(target, str) and target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Returns an attribute of the module."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function."""
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method of the first argument."""
        owner, *rest = args
        return getattr(owner, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a module below."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Returns an attribute of the module, by its dotted name.

        Raises:
            RuntimeError: if there is none such.
        """
        value: Any = self.module
        for part in target.split("."):
            if not hasattr(value, part):
                raise RuntimeError(
                    f"Node referenced nonexistent target {target}: {type(value).__name__} has no {part!r}"
                )
            value = getattr(value, part)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Returns arguments with values in the place of nodes."""

        def value(arg: Node) -> Any:
            if arg not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {arg}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[arg]

        return map_arg(args, value)


class _TransformerTracer(Tracer):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.root = Module()

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Makes another module of one with a graph: it runs the graph with proxies. A derived class changes what nodes do.

    Args:
        module: that is transformed
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Adds a placeholder."""
        default = args[0] if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(str(target), default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """Adds the read of an attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Adds a call of a module, which is not looked into."""
        return self.tracer.call_module(self.fetch_attr(str(target)), self.submodules[str(target)].forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Adds a call of a function, which is not looked into."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Runs the graph and returns the module that it makes."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            made_of = map_aggregate(result, lambda x: x.node if isinstance(x, Proxy) else x)
            self.new_graph.output(made_of, self.graph.output_node().type)
        made = GraphModule(self.module, self.new_graph)
        old = [n for n in self.graph.nodes if n.op == "placeholder"]
        new = [n for n in self.new_graph.nodes if n.op == "placeholder"]
        for a, b in zip(old, new, strict=True):
            b.type = a.type
        made.recompile()
        return made
