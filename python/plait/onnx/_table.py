"""The table of operations: which nodes of ONNX each is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait import _dtype
from plait._dtype import promote_types
from plait.onnx._build import FLOATS, Build, Number, Unmapped, Value
from plait.onnx._record import Dim

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


class Node:
    """An operation that is being written.

    Attributes:
        b: the graph
        op: its name, without the "_" of those in place
        args: its arguments by name: values, numbers, lists of both, and what is no tensor
        outs: the dtype and the shape of each result
    """

    def __init__(self, build: Build, op: str, args: dict[str, Any], outs: list[tuple[str, list[Any]]]) -> None:
        self.b, self.op, self.args, self.outs = build, op, args, outs

    @property
    def dtype(self) -> str:
        """The dtype of the first result."""
        return self.outs[0][0]

    @property
    def shape(self) -> list[Any]:
        """The shape of the first result."""
        return self.outs[0][1]

    def common(self, *given: Any) -> str:
        """Returns the dtype in which an operation on tensors and numbers computes."""
        values = [x for x in given if isinstance(x, Value)]
        ranked = [x for x in values if x.shape != []] or values
        found = ranked[0].dtype
        for x in ranked[1:]:
            found = str(promote_types(getattr(_dtype, found), getattr(_dtype, x.dtype))).rsplit(".", maxsplit=1)[-1]
        for x in given:
            if x not in ranked and kind(x.dtype) > kind(found):
                found = x.dtype if isinstance(x, Value) else self.default(x.dtype)
        return found

    def default(self, dtype: str) -> str:
        """Returns the dtype that a number of a kind has by itself."""
        return {"bool": "bool", "int64": "int64"}.get(dtype, "float32")


def kind(dtype: str) -> int:
    """Returns 0 for bool, 1 for integers, 2 for floating point."""
    return 0 if dtype == "bool" else 2 if dtype in FLOATS else 1


def row(names: str) -> Callable[[Rule], Rule]:
    """Registers what makes the nodes of operations: it gets the operation and its arguments by name."""

    def add(rule: Rule) -> Rule:
        for name in names.split():
            assert name not in RULES, name
            RULES[name] = lambda n, rule=rule: rule(n, **{_argument(k): v for k, v in n.args.items()})
        return rule

    return add


def _argument(name: str) -> str:
    return "count" if name == "n" else name.lower()


def each(**rules: Rule) -> None:
    """Registers operations on elements, by functions of their tensors as values of the result's dtype and of their
    attributes.
    """
    for name, rule in rules.items():
        RULES[name.rstrip("_")] = lambda n, rule=rule: rule(*operands(n, n.dtype))


def tests(**rules: Rule) -> None:
    """Registers operations whose result is bool, by functions of their tensors in the dtype of the computation."""
    for name, rule in rules.items():
        RULES[name.rstrip("_")] = lambda n, rule=rule: rule(*operands(n, n.common(*tensors(n))))


def tensors(n: Node) -> list[Any]:
    """Returns the tensors and numbers in the place of tensors among the arguments."""
    return [x for x in n.args.values() if isinstance(x, (Value, Number))]


def operands(n: Node, dtype: str) -> list[Any]:
    """Returns the arguments, with tensors and numbers in the place of tensors as values of a dtype."""
    return [n.b.like(x, dtype) if isinstance(x, (Value, Number)) else number(x) for x in n.args.values()]


def number(x: Any) -> Any:
    """Returns an argument that may be a number without a finite value."""
    return float(x["float"].replace("Inf", "inf")) if isinstance(x, dict) else x


def axes(dims: Any, rank: int) -> list[int]:
    """Returns dimensions counted from 0: all of them for None and an empty list."""
    if isinstance(dims, int):
        dims = [dims]
    return sorted(d % max(rank, 1) for d in dims) if dims else list(range(rank))


def broadcast(a: list[Any], b: list[Any]) -> list[Any]:
    """Returns the shape of an operation on elements of two shapes."""
    rank = max(len(a), len(b))
    left, right = [1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b
    return [y if x == 1 else x for x, y in zip(left, right, strict=True)]


def permuted(x: Value, dims: list[int]) -> Value:
    """Returns a value with its dimensions in another order."""
    if dims == list(range(len(dims))):
        return x
    return x.make("Transpose", perm=dims).known([x.dims[d] for d in dims])


def reshaped(x: Value, shape: list[Any]) -> Value:
    """Returns a value with another shape."""
    if x.shape == shape:
        return x
    return x.make("Reshape", x.b.ints(shape), allowzero=1 if 0 in shape else None).known(shape)


def expanded(x: Value, shape: list[Any]) -> Value:
    """Returns a value broadcast to a shape."""
    if x.shape == shape:
        return x
    return x.make("Expand", x.b.ints(shape)).known(shape)


def unsqueezed(x: Value, *dims: int) -> Value:
    """Returns a value with new dimensions of one element, at these places of the result."""
    rank = x.rank + len(dims)
    at = sorted(d % rank for d in dims)
    shape = list(x.dims)
    for d in at:
        shape.insert(d, 1)
    return x.make("Unsqueeze", x.b.ints(at)).known(shape)


def squeezed(x: Value, *dims: int) -> Value:
    """Returns a value without dimensions of one element."""
    at = [d % x.rank for d in dims]
    return x.make("Squeeze", x.b.ints(at)).known([n for d, n in enumerate(x.dims) if d not in at])


def sliced(x: Value, d: int, start: Any, end: Any, step: int = 1, size: Any = None) -> Value:
    """Returns a part of a value along a dimension; size is what it has there, if that is known."""
    out = x.make("Slice", x.b.ints([start]), x.b.ints([end]), x.b.ints([d]), x.b.ints([step]))
    shape = list(x.dims)
    shape[d] = size if size is not None else Dim(())
    return out.known(shape if size is not None else None)


def reduced(kind_: str, x: Value, dims: list[int], keepdim: bool = False) -> Value:
    """Returns a reduction of a value over dimensions."""
    if not dims:
        return x
    out = x.make(kind_, x.b.ints(dims), keepdims=int(keepdim))
    shape = [1 if d in dims else n for d, n in enumerate(x.dims) if keepdim or d not in dims]
    return out.known(shape)


def joined(parts: list[Value], d: int) -> Value:
    """Returns values one behind the other along a dimension."""
    if len(parts) == 1:
        return parts[0]
    return parts[0].b.node("Concat", parts, [parts[0].dtype], axis=d)[0]


def count(x: Value, dims: list[int], dtype: str) -> Value:
    """Returns the number of elements that a reduction over dimensions takes, as a value of a dtype."""
    static = 1
    out = None
    for d in dims:
        n = x.dims[d]
        if isinstance(n, Dim):
            out = x.b.scalar(n) if out is None else out * x.b.scalar(n)
        else:
            static *= n
    if out is None:
        return x.b.constant(float(static) if dtype in FLOATS else static, dtype)
    return (out if static == 1 else out * static).to(dtype)


def no(why: str) -> Unmapped:
    """Returns the error for a use that has no form in ONNX."""
    return Unmapped(why)
