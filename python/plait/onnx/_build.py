"""What ONNX graphs are built with: values with operators, and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from plait._dtype import int16
from plait._tensor import Tensor
from plait.onnx._errors import OnnxExporterError
from plait.onnx._record import Dim

# The numbers of onnx.TensorProto.DataType, and NumPy's dtypes.
TYPES = {
    "float32": (1, np.float32), "uint8": (2, np.uint8), "int8": (3, np.int8), "uint16": (4, np.uint16),
    "int16": (5, np.int16), "int32": (6, np.int32), "int64": (7, np.int64), "bool": (9, np.bool_),
    "float16": (10, np.float16), "float64": (11, np.float64), "uint32": (12, np.uint32), "uint64": (13, np.uint64),
    "bfloat16": (16, np.uint16),
}  # fmt: skip
FLOATS = ("float16", "bfloat16", "float32", "float64")


class Unmapped(Exception):
    """An operation, or a use of it, that has no form in ONNX here. `why` is empty if all of its uses have none."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Number:
    """A plain number in the place of a tensor."""

    def __init__(self, value: Any, dtype: str) -> None:
        self.value, self.dtype = value, dtype


class Value:
    """A tensor of an ONNX graph. Operators make nodes; numbers beside it have its dtype.

    Attributes:
        name: in the graph
        dtype: Plait's name
        shape: ints and [Dim]s, or None if it is not known
        elements: those of a small constant, as ints and [Dim]s, or None
    """

    elements: list[Any] | None = None

    def __init__(self, build: Build, name: str, dtype: str, shape: list[Any] | None = None) -> None:
        self.b, self.name, self.dtype, self.shape = build, name, dtype, shape

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def dims(self) -> list[Any]:
        """The shape, which must be known."""
        assert self.shape is not None, self.name
        return self.shape

    def size(self, d: int) -> int:
        """Returns the size of a dimension that is not dynamic."""
        n = self.dims[d]
        if isinstance(n, Dim):
            raise Unmapped(f"with a dynamic size of dimension {d % self.rank}")
        return int(n)

    def make(self, kind: str, *others: Any, dtype: str = "", **attributes: Any) -> Value:
        """Returns the result of a node whose first input it is; numbers among the others get its dtype."""
        inputs = [self, *(self.b.like(x, self.dtype) if isinstance(x, (int, float, bool)) else x for x in others)]
        return self.b.node(kind, inputs, [dtype or self.dtype], **attributes)[0]

    def to(self, dtype: str) -> Value:
        """Returns it with another dtype."""
        if dtype == self.dtype:
            return self
        out = self.make("Cast", dtype=dtype, to=type_number(dtype))
        out.shape = self.shape
        return out

    def known(self, shape: list[Any] | None) -> Value:
        """Returns it, with a shape that the caller knows."""
        self.shape = shape
        return self

    def _binary(self, kind: str, other: Any, dtype: str = "") -> Value:
        return self.make(kind, other, dtype=dtype)

    def _turned(self, kind: str, other: Any) -> Value:
        return self.b.like(other, self.dtype).make(kind, self)

    def __add__(self, other: Any) -> Value:
        return self._binary("Add", other)

    def __radd__(self, other: Any) -> Value:
        return self._turned("Add", other)

    def __sub__(self, other: Any) -> Value:
        return self._binary("Sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self._turned("Sub", other)

    def __mul__(self, other: Any) -> Value:
        return self._binary("Mul", other)

    def __rmul__(self, other: Any) -> Value:
        return self._turned("Mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._binary("Div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._turned("Div", other)

    def __pow__(self, other: Any) -> Value:
        return self._binary("Pow", other)

    def __neg__(self) -> Value:
        return self.make("Neg")

    def __lt__(self, other: Any) -> Value:
        return self._binary("Less", other, "bool")

    def __le__(self, other: Any) -> Value:
        return self._binary("LessOrEqual", other, "bool")

    def __gt__(self, other: Any) -> Value:
        return self._binary("Greater", other, "bool")

    def __ge__(self, other: Any) -> Value:
        return self._binary("GreaterOrEqual", other, "bool")

    def equals(self, other: Any) -> Value:
        """Returns whether elements are equal."""
        return self._binary("Equal", other, "bool")

    def __and__(self, other: Any) -> Value:
        return self._binary("And", other)

    def __or__(self, other: Any) -> Value:
        return self._binary("Or", other)

    def __invert__(self) -> Value:
        return self.make("Not")

    def where(self, yes: Any, no: Any) -> Value:
        """Returns elements of `yes` where it holds and of `no` where not; one of them may be a number."""
        if not isinstance(yes, Value):
            yes = self.b.like(yes, no.dtype)
        elif not isinstance(no, Value):
            no = self.b.like(no, yes.dtype)
        return self.make("Where", yes, no, dtype=yes.dtype)


def type_number(dtype: str) -> int:
    """Returns the number that ONNX has for a dtype."""
    if dtype not in TYPES:
        raise Unmapped(f"for {dtype}")
    return TYPES[dtype][0]


class Build:
    """An ONNX graph in the making."""

    def __init__(self, onnx: Any, opset: int) -> None:
        self.onnx, self.opset = onnx, opset
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.scope = ""
        self.atoms: dict[tuple[int, ...], tuple[Value, int]] = {}  # the first tensor and dimension with these sizes
        self.dims: dict[tuple[int, ...], str] = {}  # the names of sizes of arguments
        self._made: dict[Any, Value] = {}
        self._count = 0

    def fresh(self, kind: str) -> str:
        """Returns a name that is not taken."""
        self._count += 1
        return f"{self.scope}{'/' if self.scope else ''}{kind.lower()}_{self._count}"

    def node(self, kind: str, inputs: Sequence[Value | None], dtypes: Sequence[str], **attributes: Any) -> list[Value]:
        """Adds a node and returns its results."""
        outs = [Value(self, self.fresh(kind) if d else "", d) for d in dtypes]
        names = [x.name if x is not None else "" for x in inputs]
        while names and not names[-1]:
            names.pop()
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(self.onnx.helper.make_node(kind, names, [o.name for o in outs], name=outs[0].name, **given))
        return outs

    def constant(self, array: Any, dtype: str = "") -> Value:
        """Returns a constant of an array's elements."""
        array = np.asarray(array)
        dtype = dtype or str(array.dtype)
        number, kind = type_number(dtype), TYPES[dtype][1]
        with np.errstate(all="ignore"):
            raw = bfloat16(array) if dtype == "bfloat16" else array.astype(kind)
        key = (dtype, raw.shape, raw.tobytes())
        if key not in self._made:
            name = f"constant_{len(self.initializers)}"
            self.initializers[name] = self._proto(name, number, list(raw.shape), raw.tobytes())
            self._made[key] = Value(self, name, dtype, list(raw.shape))
        return self._made[key]

    def tensor(self, name: str, t: Tensor) -> Value:
        """Returns a constant, or a parameter, of a tensor's elements."""
        dtype = str(t.dtype).rsplit(".", maxsplit=1)[-1]
        number = type_number(dtype)
        t = t.detach().cpu().contiguous()
        data = raw_bytes(t, dtype)
        self.initializers[name] = self._proto(name, number, list(t.shape), data)
        return Value(self, name, dtype, list(t.shape))

    def _proto(self, name: str, number: int, shape: list[int], data: bytes) -> Any:
        return self.onnx.TensorProto(name=name, data_type=number, dims=shape, raw_data=data)

    def like(self, x: Any, dtype: str) -> Value:
        """Returns a value, a plain number or a size as a value of a dtype."""
        if isinstance(x, Value):
            return x.to(dtype)
        if isinstance(x, Number):
            x = x.value
        if isinstance(x, dict):
            x = float(x["float"].replace("+Inf", "inf").replace("-Inf", "-inf"))
        if isinstance(x, list):
            raise Unmapped("for complex numbers")
        if isinstance(x, Dim):
            return self.scalar(x).to(dtype)
        return self.constant(np.asarray(x), dtype)

    def ints(self, numbers: Sequence[Any]) -> Value:
        """Returns whole numbers, some of which may follow from sizes, as a vector."""
        if not any(isinstance(n, Dim) for n in numbers):
            return self.constant(np.asarray(numbers, np.int64))
        parts = [self.one(n) for n in numbers]
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, ["int64"], axis=0)[0].known([len(parts)])

    def scalar(self, number: Any) -> Value:
        """Returns a whole number without dimensions."""
        if not isinstance(number, Dim):
            return self.constant(np.asarray(number, np.int64))
        return self.node("Squeeze", [self.one(number)], ["int64"])[0].known([])

    def one(self, number: Any) -> Value:
        """Returns a whole number as a vector of one element."""
        if not isinstance(number, Dim):
            return self.constant(np.asarray([number], np.int64))
        if number.passes not in self._made:
            self._made[number.passes] = self._find(number.passes).known([1])
        return self._made[number.passes]

    def _atom(self, passes: tuple[int, ...]) -> Value:
        value, d = self.atoms[passes]
        return self.node("Shape", [value], ["int64"], start=d, end=d + 1)[0]

    def note(self, value: Value) -> Value:
        """Takes note of a tensor whose sizes may stand for numbers that later nodes take."""
        for d, n in enumerate(value.dims):
            if isinstance(n, Dim) and n.passes not in self.atoms:
                self.atoms[n.passes] = value, d
        return value

    def _find(self, passes: tuple[int, ...]) -> Value:
        """Returns a number that follows from sizes: a size, one times a factor plus a number, a product of two sizes
        times a factor, or the sum or difference of two.
        """
        if passes in self.atoms:
            return self._atom(passes)
        p = np.asarray(passes, np.int64)
        for atoms in ([a for a in self.atoms if a in self.dims], list(self.atoms)[:200]):
            for a in atoms:
                if found := self._affine(p, a):
                    return found
            for i, a in enumerate(atoms):
                for c in atoms[i:]:
                    if found := self._pair(p, a, c) or self._pair(p, c, a):
                        return found
        raise OnnxExporterError(
            f"onnx: a number that is {', then '.join(map(str, passes))} with other sizes follows from none of them by "
            "a factor, a difference, a product or a sum"
        )

    def _pair(self, p: Any, a: tuple[int, ...], c: tuple[int, ...]) -> Value | None:
        x, y = np.asarray(a, np.int64), np.asarray(c, np.int64)
        for kind, got in (("Mul", x * y), ("Add", x + y), ("Sub", x - y)):
            if got.all() and not (p % got).any() and len(set((p // got).tolist())) == 1:
                out = self.one(Dim(a)).make(kind, self.one(Dim(c)))
                return out if p[0] == got[0] else out * int(p[0] // got[0])
        return None

    def _affine(self, p: Any, a: tuple[int, ...]) -> Value | None:
        x = np.asarray(a, np.int64)
        dx, dp = x - x[0], p - p[0]
        k = int(np.argmax(dx != 0))
        if not dx[k] or dp[k] == 0:
            return None
        if dp[k] % dx[k] == 0:
            factor = int(dp[k] // dx[k])
            shift = int(p[0] - factor * x[0])
            if np.array_equal(factor * x + shift, p):
                out = self.one(Dim(a))
                out = out if factor == 1 else out * factor
                return out if shift == 0 else out + shift
        for divisor in range(2, 65):  # as of layers with a stride
            shifts = p - x // divisor
            if (shifts == shifts[0]).all():
                out = self.one(Dim(a)) / divisor
                return out if shifts[0] == 0 else out + int(shifts[0])
            shifts = p + (-x // divisor)
            if (shifts == shifts[0]).all():
                out = (self.one(Dim(a)) + (divisor - 1)) / divisor
                return out if shifts[0] == 0 else out + int(shifts[0])
        return None


def raw_bytes(t: Tensor, dtype: str) -> bytes:
    """Returns the elements of a contiguous tensor in memory."""
    if dtype == "bfloat16":
        t = t.view(int16)
    return bytes(t.numpy().tobytes())


def bfloat16(array: Any) -> Any:
    """Returns numbers rounded to bfloat16, as their bits."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(np.asarray(array, np.float32)), 0x7FC0, rounded).astype(np.uint16)
