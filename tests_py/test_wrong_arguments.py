"""Wrong arguments of every operation: an exception of a proper class that names the operation, and nothing worse."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import plait
import pytest
from plait import _core, _ops
from plait._functions import public

PROPER = (TypeError, ValueError, IndexError, OverflowError, NotImplementedError, MemoryError, plait.DeviceError)


def functions(module: Any) -> list[Callable[..., Any]]:
    """Returns the functions that a module offers, but for those that do not take tensors."""
    apart = {"set_num_threads", "set_num_interop_threads", "save", "load"}
    named = {n: getattr(module, n) for n in getattr(module, "__all__", dir(module)) if n not in apart and n[0] != "_"}
    return [f for _, f in sorted(named.items()) if inspect.isfunction(f)]


def slices() -> list[Any]:
    """Returns the functions in parts, so that a test is short."""
    out = []
    for name, module in (("_ops", _ops), ("plait", public), ("functional", plait.nn.functional)):
        all_of_them = functions(module)
        for i in range(0, len(all_of_them), 60):
            out.append(pytest.param(all_of_them[i : i + 60], id=f"{name} {i}"))
    return out


class Thing:
    def __repr__(self) -> str:
        return "a thing"


def released() -> plait.Tensor:
    """Returns a tensor whose handle is not valid any more."""
    gone = plait.ones(1)
    forged: Any = object.__new__(plait.Tensor)
    forged._h = gone._h
    return forged


def itself() -> list[Any]:
    """Returns a list that has itself for its elements."""
    made: list[Any] = []
    made += [made, made]
    return made


# Wrong for most arguments, and right for some; each makes a new value, since operations may change what they get.
VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "string": lambda: "x",
    "bytes": lambda: b"12345678",
    "thing": Thing,
    "complex": lambda: 1j,
    "half": lambda: 1.5,
    "infinite": lambda: float("inf"),
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "past int32": lambda: 1 << 31,
    "huge": lambda: 1 << 62,
    "least": lambda: -(1 << 63),
    "past int64": lambda: 1 << 63,
    "empty list": lambda: [],
    "nested empty list": lambda: [[]],
    "list of itself": itself,
    "mixed list": lambda: [1, "a"],
    "list of none": lambda: [None],
    "list of huge": lambda: [1 << 40] * 13,
    "too many dimensions": lambda: tuple(range(1, 14)),
    "dict": dict,
    "dtype": lambda: plait.float32,
    "no elements": lambda: plait.empty(0),
    "integers": lambda: plait.ones(2, 3, dtype=plait.int64),
    "another shape": lambda: plait.ones(5),
    "bool": lambda: plait.tensor(True),
    "many dimensions": lambda: plait.ones(1, 1, 1, 1, 1, 1, 1),
    "released": released,
}


# Something that suits an argument with an annotation, so that the others are what is wrong.
SUITABLE: dict[str, Callable[[], Any]] = {
    "Tensor": lambda: plait.rand(2, 3),
    "Sequence[Tensor]": lambda: [plait.rand(2, 3), plait.rand(2, 3)],
    "Sequence[int]": lambda: [1],
    "Sequence[float]": lambda: [1.0],
    "int": lambda: 1,
    "float": lambda: 0.5,
    "bool": lambda: True,
    "str": lambda: "mean",
}


def suitable(parameter: inspect.Parameter) -> Any:
    kinds = [k.strip() for k in str(parameter.annotation).split("|")]
    return next((make() for kind, make in SUITABLE.items() if kind in kinds), None)


def attempts(function: Callable[..., Any]) -> Any:
    """Yields calls of a function: what is wrong, positional arguments, keywords."""
    parameters = list(inspect.signature(function).parameters.values())
    spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)

    def usual() -> tuple[list[Any], dict[str, Any]]:
        needed = [p for p in parameters if p.default is p.empty]
        return (
            [suitable(p) for p in needed if p.kind is not p.KEYWORD_ONLY],
            {p.name: suitable(p) for p in needed if p.kind is p.KEYWORD_ONLY},
        )

    if parameters and not spread and parameters[0].default is inspect.Parameter.empty:
        yield "nothing", [], {}
    positional, named = usual()
    if not spread:
        yield "too many", positional + [1] * 20, named
    yield "unknown keyword", positional, {**named, "no_such_argument": 1}
    for i, p in enumerate(parameters):
        for what, value in VALUES.items():
            positional, named = usual()
            if i < len(positional):
                positional[i] = value()
            elif p.kind is p.VAR_POSITIONAL:
                positional.append(value())
            else:
                named[p.name] = value()
            yield f"{p.name} = {what}", positional, named


@pytest.fixture
def little_memory():
    """Sizes that are merely large are refused too, and not filled with numbers."""
    before = _core.bind_CpuMemoryLimit()
    _core.bind_CpuSetMemoryLimit(1 << 28)
    yield
    _core.bind_CpuSetMemoryLimit(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("part", slices())
def test_every_operation_refuses_wrong_arguments(part, little_memory):
    wrong = []
    for function in part:
        name = function.__name__
        for what, positional, named in attempts(function):
            try:
                result = function(*positional, **named)
                if isinstance(result, plait.Tensor) and result.numel() < 1000:
                    result.tolist()
            except RuntimeError as error:
                message = str(error)
                proper = isinstance(error, PROPER) or message.startswith("bool: the truth of a tensor")
                if not proper or "internal error" in message:
                    wrong.append((name, what, type(error).__name__, message[:200]))
            except PROPER as error:
                # Of the operation, of one that it is made of, or of the argument.
                if not re.match(rf"({name}\(\)|\w+:|dtype must) ", str(error)):
                    wrong.append((name, what, type(error).__name__, str(error)[:200]))
    assert not wrong, "\n".join(map(str, wrong[:40]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: plait.diff(x, n=-1), ValueError, "diff: got order -1"),
        (lambda x: plait.conv1d(x, x[:, None], groups=0), ValueError, "conv1d: groups must not be 0"),
        (lambda x: plait.conv_transpose1d(x, x[:, None], groups=0), ValueError, "groups must not be 0"),
        (lambda x: plait.movedim(x, [0], []), ValueError, r"movedim: got 1 dimensions \[0\] and 0 places"),
        (lambda x: plait.tensor_split(x, 1 << 31), ValueError, "tensor_split: want at most 16777216 parts"),
        (lambda x: plait.dist(x, plait.ones(4)), ValueError, "dist: sub: shapes"),
        (lambda x: plait.zeros(b"12345678"), TypeError, "zeros: size must be"),
        (lambda x: plait.rand(2, generator="x"), TypeError, "generator must be Generator or None, got str"),
        (lambda x: plait.zeros(2, device=True), TypeError, "device: want a name"),
        (lambda x: plait.device("cpu", -1), ValueError, "device: want an index of 0 or more"),
        (lambda x: plait.zeros(2, dtype=x), TypeError, "dtype must be one of"),
        (lambda x: plait.add(x, "1"), TypeError, "add: other must be Tensor or Number, got str '1'"),
        (lambda x: plait.matmul(x, x), RuntimeError, "matmul: inner dimensions differ"),
        (lambda x: x.view(7), RuntimeError, "view"),
        (lambda x: x + "1", TypeError, "add|unsupported operand"),
        (lambda x: x.sum(dim=5), IndexError, "sum: dimension 5 out of range"),
        (lambda x: x.item(), (ValueError, RuntimeError), "item: got a tensor of shape"),
    ],
)
def test_messages_teach(call, error, message):
    with pytest.raises(error, match=message):
        call(plait.ones(2, 3))


def test_arguments_are_runtime_errors_too():
    x = plait.ones(2, 3)
    for call in (x.item, lambda: x.topk(9), lambda: x.repeat(2), lambda: plait.stack([]), lambda: x.to("nowhere")):
        for error in (ValueError, RuntimeError):
            with pytest.raises(error):
                call()


def test_functions_made_of_others_cut_huge_counts():
    x = plait.tensor([3.0, 4.5])
    assert plait.mvlgamma(x, 2).tolist() == pytest.approx([1.5501949939575645, 4.817860982995198], rel=1e-5)
    with pytest.raises(ValueError, match="mvlgamma: p must be at least 1"):
        plait.mvlgamma(x, 0)
    with pytest.raises(MemoryError):
        plait.mvlgamma(x, 1 << 62)
