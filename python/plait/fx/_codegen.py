"""Code of a graph: the Python function that does what the graph says."""

from __future__ import annotations

import itertools
import linecache
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import plait
from plait.fx import _pytree as fx_pytree
from plait.fx._names import Namespace, public_name, qualified_name, shown, top
from plait.fx.node import Node, map_arg, type_name
from plait.utils import _pytree as pytree
from plait.utils._pytree import TreeSpec

if TYPE_CHECKING:
    from plait.fx.graph import Graph

BINARY = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "matmul": "@",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
}  # fmt: skip
WRAPPED = "_fx_wrapped"
UNARY = {"pos": "+", "neg": "-", "invert": "~"}


class Expression(str):
    """An argument as code."""

    __slots__ = ()


@dataclass
class PythonCode:
    """Source text of a function, and the global names that it needs."""

    src: str
    globals: dict[str, Any] = field(repr=False)
    wrapped: list[str] = field(default_factory=list)  # functions that tracing does not look into


class CodeGen:
    """Writes the function of a graph; a derived class may change how its inputs and outputs pass."""

    # Changes the lines of the function's body; see `Graph.on_generate_code`.
    _body_transformer: Callable[[list[str]], list[str]] | None = None

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """Returns the line that begins the function.

        Args:
            free_vars: the parameters, with annotations and defaults
            maybe_return_annotation: the annotation of the result; "" if there is none
        """
        return f"def forward({', '.join(['self', *free_vars])}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any) -> str:
        """Returns the line that ends the function, for what it returns: an argument, or the expression of one."""
        return f"return {output_args if isinstance(output_args, Expression) else shown(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """Returns the values of placeholders for the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Returns what a call returns for the value of the output's node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Returns names, and their values, that the lines of a derived class need."""
        return []


class PyTreeInfo(NamedTuple):
    """How a function passes containers: the names of its arguments, and the forms of those and of what it returns."""

    orig_args: list[str]
    in_spec: TreeSpec
    out_spec: TreeSpec | None


class PyTreeCodeGen(CodeGen):
    """Writes the function of a graph that has a placeholder for each part of a container."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        self.pytree_info = pytree_info

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """Returns the lines that begin the function and take its arguments apart."""
        names = list(self.pytree_info.orig_args)
        args = names[1:] if names[0] == "self" else list(names)
        placeholders = [v.partition(" : ")[0].partition(" = ")[0] for v in free_vars]
        defaults = dict(zip(placeholders, free_vars, strict=True))
        for i in range(len(args) - 1, -1, -1):  # those at the end
            if " = " not in defaults.get(args[i], ""):
                break
            args[i] = defaults[args[i]]
        first = super().gen_fn_def(args, maybe_return_annotation)
        all_placeholders = [*names[: len(names) - len(args)], *placeholders]
        leaves = "".join(f"{p}, " for p in all_placeholders)
        return f"{first}\n    {leaves}= fx_pytree.tree_flatten_spec([{', '.join(names)}], self._in_spec)"

    def generate_output(self, output_args: Any) -> str:
        """Returns the line that ends the function: it makes the containers again."""
        shown_args = output_args if isinstance(output_args, Expression) else shown(output_args)
        return f"return pytree.tree_unflatten({shown_args}, self._out_spec)"

    def process_inputs(self, *args: Any) -> Any:
        """Returns the values of placeholders for the arguments of a call."""
        spec = self.pytree_info.in_spec
        more = [None] * (spec.num_children - len(args))  # a module itself
        return tuple(fx_pytree.tree_flatten_spec([*more, *args], spec)[len(more) :])

    def process_outputs(self, outputs: Any) -> Any:
        """Returns what a call returns for the value of the output's node."""
        spec = self.pytree_info.out_spec
        return outputs if spec is None else pytree.tree_unflatten(outputs, spec)

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Returns the modules that take containers apart and make them."""
        return [("pytree", pytree), ("fx_pytree", fx_pytree)]


class _Globals:
    """The names of functions and types in the code, and what they mean."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        name, module = top()
        self.found: dict[str, Any] = {
            name: module, "device": plait.device, "inf": math.inf, "nan": math.nan, "NoneType": type(None)
        }  # fmt: skip

    def name_of(self, function: Any) -> str:
        """Returns an expression for a function or a class."""
        name = qualified_name(function)
        if public_name(function):
            return name
        if name.startswith("builtins."):
            name = name.removeprefix("builtins.")
            self.found[name] = function
            return name
        if name.startswith("operator."):
            name = f"_{name}"  # as the module says itself, where the function comes from C
        return self.add(name, function)

    def of(self, value: Any) -> Expression:
        """Returns an argument as an expression."""
        return Expression(shown(value, self.name_of))

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Returns what stands between the brackets of a call."""
        return ", ".join([*map(self.of, args), *(f"{k} = {self.of(v)}" for k, v in kwargs.items())])

    def add(self, hint: str, value: Any) -> str:
        """Returns the name of a value, one like the hint."""
        hint = hint.replace(".", "_").replace("<", "_").replace(">", "_")
        if hint in self.found and self.found[hint] is value:
            return hint
        name = self._namespace.create_name(hint, None)
        self.found[name] = value
        return name

    def annotation(self, kind: Any) -> str:
        """Returns an annotation, in which names that the code does not have are global ones."""
        if isinstance(kind, str):
            return repr(kind)
        if isinstance(kind, type) and not hasattr(kind, "__origin__"):
            return kind.__name__ if kind.__module__ == "builtins" else self.name_of(kind)
        return self.add(type(kind).__name__ + "_type", kind) if kind is not None else type_name(kind)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Returns, by node, those that nothing behind it uses."""
    seen: set[Node] = set()
    out: dict[Node, list[Node]] = {}
    for user in reversed(list(graph.nodes)):

        def note(n: Node, user: Node = user) -> Node:
            if n not in seen:
                seen.add(n)
                out.setdefault(user, []).append(n)
            return n

        map_arg(user.args, note)
        map_arg(user.kwargs, note)
    return out


def _path(root: str, target: str) -> str:
    """Returns the expression of an attribute with a dotted name."""
    for part in target.split("."):
        root = f"{root}.{part}" if part.isidentifier() else f'getattr({root}, "{part}")'
    return root


def _operation(node: Node, root: str, names: _Globals, wrapped: dict[str, None]) -> str:
    """Returns the expression of a node's value."""
    args, kwargs, target = node.args, node.kwargs, node.target
    if node.op == "get_attr":
        return _path(root, target)
    if node.op == "call_module":
        return f"{_path(root, target)}({names.call(args, kwargs)})"
    if node.op == "call_method":
        return f"{_path(names.of(args[0]), target)}({names.call(args[1:], kwargs)})"
    name = getattr(target, "__name__", "")
    if getattr(target, "__module__", "") == "_operator" and not kwargs:
        if name in BINARY and len(args) == 2:
            return f"{names.of(args[0])} {BINARY[name]} {names.of(args[1])}"
        if name in UNARY and len(args) == 1:
            return f"{UNARY[name]}{names.of(args[0])}"
        if name == "getitem" and len(args) == 2:
            return f"{names.of(args[0])}[{names.of(args[1])}]"
    if target is getattr and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
        return f"{names.of(args[0])}.{args[1]}"
    called = names.name_of(target)
    if node.meta.get("is_wrapped", False):
        wrapped.setdefault(called)
    return f"{called}({names.call(args, kwargs)})"


def python_code(graph: Graph, root: str, note: Callable[[Node], list[str]] | None = None) -> PythonCode:
    """Returns the code of a graph.

    Args:
        graph: that is written
        root: the name of the module that has attributes and modules
        note: returns comments for a node
    """
    namespace = Namespace()
    for node in graph.nodes:
        namespace.rename(node, node.name)
    names = _Globals(namespace)
    codegen: CodeGen = graph._codegen
    for hint, value in codegen.additional_globals():
        names.add(hint, value)
    parameters: list[str] = []
    body: list[str] = []
    wrapped: dict[str, None] = {}
    returns = ""
    last = _last_uses(graph)
    for node in graph.nodes:
        kind = "" if node.type is None else f" : {names.annotation(node.type)}"
        if note is not None:
            body += note(node)
        if node.op == "placeholder":
            default = f" = {names.of(node.args[0])}" if node.args else ""
            parameters.append(f"{node.target}{kind}{default}")
            raw = node.target.replace("*", "")
            if raw != node.name:
                body.append(f"{node.name} = {raw}")
            continue
        if node.op == "output":
            if node.type is not None:
                returns = f" -> {names.annotation(node.type)}"
            body.append(codegen.generate_output(names.of(node.args[0])))
            continue
        line = f"{node.name}{kind} = {_operation(node, root, names, wrapped)}"
        dropped = [*last.get(node, []), *([] if node.users else [node])]
        body.append(line + (f";  {' = '.join(n.name for n in dropped)} = None" if dropped else ""))
    first = codegen.gen_fn_def(parameters, returns)
    body = body or ["pass"]
    if codegen._body_transformer is not None:
        body = "".join(codegen._body_transformer([f"{line}\n" for line in body])).splitlines()
    lines = [*body, ""]
    wraps = "\n".join(f'{top()[0]}.fx._symbolic_trace.wrap("{n}")' for n in wrapped)
    src = f"\n{wraps}\n\n{first}\n" + "\n".join(f"    {line}" for line in lines)
    return PythonCode(src, names.found, list(wrapped))


_sources = itertools.count()


def function_of(code: PythonCode) -> Callable[..., Any]:
    """Returns the function that code defines. Its lines are shown where it raises."""
    name = f"<eval_with_key>.{next(_sources)}"
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(keepends=True), name)
    # Tracers find wrapped functions by this name, so that the calls of `wrap`, which never forgets, are left out.
    space = {**code.globals, WRAPPED: code.wrapped}
    src = "".join("\n" if ".wrap(" in line and line[0] != " " else line for line in code.src.splitlines(keepends=True))
    exec(compile(src, name, "exec", dont_inherit=True), space)
    weakref.finalize(space["forward"], linecache.cache.pop, name, None)
    return space["forward"]
