"""Holds the package's signatures against PyTorch's, those of signatures.json, by binding calls.

For each overload of PyTorch's the calls are: everything by position, everything by keyword, what is required alone, and
each optional argument alone. Each argument of a call has to arrive at the parameter of its name, and defaults have to
be equal. An empty tuple and None are one default: both mean that a size follows from others.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
EMPTY = inspect.Parameter.empty
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Call(NamedTuple):
    """The parameters that a call gives arguments to, by position and by keyword."""

    style: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...]


def golden() -> dict[str, dict[str, list[str]]]:
    """Returns PyTorch's signatures by module and name."""
    data = json.loads((HERE / "signatures.json").read_text("utf-8"))
    return {module: names for module, names in data.items() if module not in ("version", "modules")}


def modules() -> list[str]:
    """Returns the names of PyTorch's public modules."""
    return json.loads((HERE / "signatures.json").read_text("utf-8"))["modules"]


@functools.cache
def parse(text: str) -> tuple[inspect.Parameter, ...]:
    """Returns the parameters of a signature's text."""
    function = ast.parse(f"def f{text}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    a, P = function.args, inspect.Parameter
    out = []
    plain = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + list(a.defaults)
    for i, (p, d) in enumerate(zip(plain, defaults, strict=True)):
        kind = P.POSITIONAL_ONLY if i < len(a.posonlyargs) else P.POSITIONAL_OR_KEYWORD
        out.append(P(p.arg, kind, default=_value(d)))
    if a.vararg:
        out.append(P(a.vararg.arg, P.VAR_POSITIONAL))
    out += [P(p.arg, P.KEYWORD_ONLY, default=_value(d)) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    if a.kwarg:
        out.append(P(a.kwarg.arg, P.VAR_KEYWORD))
    return tuple(out)


def _value(node: ast.expr | None) -> Any:
    if node is None:
        return EMPTY
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def unnamed(parameter: inspect.Parameter) -> bool:
    """Whether an argument goes by position alone: a number in the place of a tensor is self in PyTorch's stubs."""
    return parameter.kind is inspect.Parameter.POSITIONAL_ONLY or parameter.name == "self"


def calls(parameters: tuple[inspect.Parameter, ...]) -> Iterator[Call]:
    """Yields the calls of an overload."""
    named = [p for p in parameters if p.kind not in VARIADIC]
    by_position = [p.name for p in named if p.kind in POSITIONAL]
    last = max((i + 1 for i, p in enumerate(named) if unnamed(p)), default=0)
    only = [p.name for p in named[:last]]
    each = [f"{p.name}.{i}" for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL for i in range(2)]
    keywords = [p.name for p in named if p.kind is inspect.Parameter.KEYWORD_ONLY]
    required = [p.name for p in named if p.default is EMPTY]
    first = (*(n for n in by_position if n in required), *each)
    rest = tuple(n for n in keywords if n in required)
    yield Call("by position", (*by_position, *each), tuple(keywords))
    if not each:
        yield Call("by keyword", tuple(only), tuple(n for n in by_position if n not in only) + tuple(keywords))
    yield Call("required alone", first, rest)
    for p in named:
        if p.default is not EMPTY and not unnamed(p):
            yield Call(f"{p.name} alone", first, (*rest, p.name))


def equal(theirs: Any, ours: Any) -> bool:
    """Whether two defaults are one. An object is known by its name."""
    if theirs in ((), None) and ours in ((), None):
        return True
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        return list(theirs) == list(ours)
    if type(theirs) is type(ours) or {type(theirs), type(ours)} <= {int, float}:
        return theirs == ours
    names = (getattr(ours, "name", None), getattr(ours, "__name__", None), str(ours).rpartition(".")[2])
    return isinstance(theirs, str) and theirs in (*names, type(ours).__name__)


def differences(overloads: list[str], ours: inspect.Signature) -> list[str]:
    """Returns in what a signature differs from PyTorch's overloads."""
    out: dict[str, None] = {}
    mine = ours.parameters
    theirs = [parse(text) for text in overloads]
    for text, parameters in zip(overloads, theirs, strict=True):
        for call in calls(parameters):
            free = [n for n in call.positional if "." in n] + [p.name for p in parameters if unnamed(p)]
            lacking = [n for n in (*call.positional, *call.keywords) if n not in mine and n not in free]
            for name in lacking:
                out[f"lacks {name}"] = None
            if lacking:
                call = call._replace(keywords=tuple(k for k in call.keywords if k not in lacking))  # noqa: PLW2901
            try:
                bound = ours.bind(*call.positional, **{k: k for k in call.keywords}).arguments
            except TypeError as error:
                if not lacking:
                    out[f"{text} {call.style}: {error}"] = None
                continue
            for name in (*call.positional, *call.keywords):
                if bound.get(name) != name and name not in lacking and name not in free:
                    out[f"{text}: {name} does not arrive"] = None
        for p in parameters:
            if p.kind in VARIADIC and not any(m.kind is p.kind for m in mine.values()):
                out[f"lacks {p}"] = None
    known = {p.name: [] for parameters in theirs for p in parameters}
    for p in (p for parameters in theirs for p in parameters):
        if p.default is not EMPTY:
            known[p.name].append(p.default)
    order = list(mine)
    renamed = [n for ps in theirs for p, n in zip(ps, order, strict=False) if unnamed(p)]
    for p in mine.values():
        if p.name not in known:
            if p.kind in POSITIONAL and p.name[0] != "_" and p.name not in renamed:
                out[f"has {p.name} by position"] = None
        elif p.default is not EMPTY and known[p.name] and not any(equal(d, p.default) for d in known[p.name]):
            out[f"default of {p.name} is {p.default!r}"] = None
    return list(out)


def resolve(module: str, name: str) -> Callable[..., Any] | None:
    """Returns what the package has of PyTorch's name, None if it has nothing."""
    path = module.replace("torch", "plait", 1)
    owner: Any
    try:
        owner = importlib.import_module("plait").Tensor if path == "plait.Tensor" else importlib.import_module(path)
        for part in name.split("."):
            if isinstance(owner, type) and not any(part in c.__dict__ for c in owner.__mro__[:-1]):
                return None
            owner = getattr(owner, part)
    except (ImportError, AttributeError):
        return None
    # A name that refuses to be used is not there.
    return owner if callable(owner) and type(owner).__name__ != "Refused" else None


def signature(module: str, name: str, thing: Any) -> inspect.Signature:
    """Returns a signature as a call has it: of a method without self."""
    found = inspect.signature(thing)
    in_class = module == "torch.Tensor" or "." in name
    if in_class and not inspect.ismethod(thing) and not _static(module, name):
        found = found.replace(parameters=list(found.parameters.values())[1:])
    return found


def _static(module: str, name: str) -> bool:
    owner_name, _, last = name.rpartition(".")
    owner = resolve(module, owner_name) if owner_name else importlib.import_module("plait").Tensor
    return any(isinstance(c.__dict__.get(last), staticmethod) for c in owner.__mro__)


def compare() -> dict[str, list[str]]:
    """Returns the differences of everything that is there, by PyTorch's full name."""
    out = {}
    for module, names in golden().items():
        for name, overloads in names.items():
            if (thing := resolve(module, name)) is not None:
                try:
                    ours = signature(module, name, thing)
                except ValueError:
                    out[f"{module}.{name}"] = ["has no signature"]
                else:
                    out[f"{module}.{name}"] = differences(overloads, ours)
    return out


def agreeing(overloads: list[str], found: list[str]) -> int:
    """Returns how many overloads a function has whose every call binds as PyTorch's does."""
    n = 0
    for text in overloads:
        names = {str(p.replace(default=EMPTY)) for p in parse(text)}
        differs = (
            d.startswith(text)
            or d.startswith("has ")
            or (d.split()[0] in ("lacks", "default") and names & {*d.split()})
            for d in found
        )
        n += not any(differs)
    return n


def known() -> list[tuple[str, str, str]]:
    """Returns the differences that there are reasons for: patterns of names and of differences, and the reasons."""
    lines = (HERE / "differences.txt").read_text("utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line and line[0] != "#"]
    return [(name, what, reason) for name, what, reason in rows]


def main() -> None:
    """Prints every difference that there is no reason for."""
    reasons = known()
    for name, found in compare().items():
        left = [d for d in found if not any(fnmatchcase(name, n) and fnmatchcase(d, w) for n, w, _ in reasons)]
        if left and left != ["has no signature"]:
            module = max((m for m in golden() if name.startswith(m + ".")), key=len)
            short = name[len(module) + 1 :]
            parameters = signature(module, short, resolve(module, short)).parameters.values()
            print(f"{name}{inspect.Signature([p.replace(annotation=EMPTY) for p in parameters])}")
            print("".join(f"    theirs {text}\n" for text in golden()[module][short]), end="")
            print("".join(f"        {line}\n" for line in left), end="")


if __name__ == "__main__":
    main()
