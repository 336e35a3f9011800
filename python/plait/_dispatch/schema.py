"""The arguments and results of PyTorch's inner functions, as `schemas.txt` lists them."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from plait import _core
from plait._dtype import dtype as DType

_Tensor = _core.TensorOwner
_ARGUMENT = re.compile(r"(\w+)(?:\(([^)]*)\))?((?:\?|\[\d*\])*)(?: (\w+))?(?:=(.*))?")


@dataclass(frozen=True)
class AliasInfo:
    """Says that an argument's memory is that of a result, or is written to."""

    before_set: frozenset[str]
    is_write: bool

    @property
    def after_set(self) -> frozenset[str]:
        """The names of the memory afterwards: the same."""
        return self.before_set


@dataclass(frozen=True)
class Argument:
    """An argument, or a result."""

    name: str
    type: str
    kwarg_only: bool = False
    alias_info: AliasInfo | None = None
    default: str | None = None
    is_out: bool = False

    @property
    def default_value(self) -> Any:
        """Its default, or None."""
        return None if self.default is None else _literal(self.default)

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self.default is not None


@dataclass(frozen=True)
class FunctionSchema:
    """The arguments and results of an operation."""

    name: str
    overload_name: str
    arguments: list[Argument]
    returns: list[Argument]
    is_mutable: bool
    composite: bool = field(repr=False, default=False)
    text: str = field(repr=False, default="")

    def __str__(self) -> str:
        return f"{self.name}{'.' * bool(self.overload_name)}{self.overload_name}{self.text}"

    def __hash__(self) -> int:
        return hash((self.name, self.overload_name))

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, exact: bool = True) -> Any:
        """Returns arguments by position and by name as PyTorch passes them on: without defaults that say nothing.

        Args:
            args: by position
            kwargs: by name
            exact: whether a number is none where a tensor is wanted

        Returns:
            None if they do not fit.
        """
        plain = [a for a in self.arguments if not a.kwarg_only]
        if len(args) > len(plain):
            return None
        given = dict(zip((a.name for a in plain), args, strict=False))
        for name, value in kwargs.items():
            key = "self" if name == "input" and plain and plain[0].name == "self" else name
            if key in given:
                return None
            given[key] = value
        positional: list[Any] = []
        named: dict[str, Any] = {}
        skipped: list[Argument] = []
        for a in self.arguments:
            if a.name not in given:
                if a.default is None:
                    return None
                skipped.append(a)
                continue
            value = given.pop(a.name)
            if not _fits(a.type, value, exact):
                return None
            value = _normal(a.type, value)
            usual = _normal(a.type, a.default_value)
            same = a.default is not None and type(value) is type(usual) and value == usual
            if a.kwarg_only:
                if not same:
                    named[a.name] = value
            elif same:
                skipped.append(a)
            else:
                positional += [s.default_value for s in skipped if not s.kwarg_only]
                skipped = []
                positional.append(value)
        return None if given else (tuple(positional), named)


def _literal(text: str) -> Any:
    if text in ("contiguous_format", "Mean"):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex) and not isinstance(value, _Tensor)


def _fits(kind: str, value: Any, exact: bool) -> bool:
    """Whether a value may be that of an argument of a type."""
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value, exact)
    base, bracket, size = kind.partition("[")
    if bracket:
        if isinstance(value, list | tuple):
            return all(_fits(base, v, exact) for v in value)
        return size != "]" and _fits(base, value, exact)
    if base == "Tensor":
        return isinstance(value, _Tensor) or (not exact and _is_number(value))
    if base == "int":
        return hasattr(value, "__index__") and not isinstance(value, bool | _Tensor)
    if base in ("Scalar", "float"):
        return _is_number(value)
    if base in ("bool", "str"):
        return isinstance(value, bool if base == "bool" else str)
    return base != "ScalarType" or isinstance(value, DType)


def _normal(kind: str, value: Any) -> Any:
    if "[" in kind and value is not None:
        size = re.search(r"\[(\d*)\]", kind)
        return list(value) if isinstance(value, list | tuple) else [value] * int((size and size[1]) or 1)
    return value


def _argument(text: str, kwarg_only: bool) -> Argument:
    kind, alias, brackets, name, default = _ARGUMENT.fullmatch(text).groups()  # type: ignore[union-attr]
    info = None
    if alias:
        names = frozenset(alias.partition(" ->")[0].rstrip("!").split("|"))
        info = AliasInfo(names, "!" in alias)
    return Argument(name or "", kind + brackets, kwarg_only, info, default)


def _parts(text: str) -> list[str]:
    """Returns what commas separate, outside of brackets."""
    out, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            out.append("")
        else:
            out[-1] += c
    return [p.strip() for p in out if p.strip()]


def _schema(name: str, text: str) -> FunctionSchema:
    composite = text.startswith("~")
    text = text.removeprefix("~")
    overload, _, rest = text.partition("(")
    inside, _, returned = rest.rpartition(") -> ")
    arguments, kwarg_only = [], False
    for part in _parts(inside):
        if part == "*":
            kwarg_only = True
        else:
            arguments.append(_argument(part, kwarg_only))
    if returned.startswith("("):
        returned = returned[1:-1]
    results = [_argument(p, False) for p in _parts(returned)]
    mutable = any(a.alias_info is not None and a.alias_info.is_write for a in arguments)
    shown = "" if overload == "default" else overload
    return FunctionSchema(f"aten::{name}", shown, arguments, results, mutable, composite, text[len(overload) :])


@functools.cache
def _lines() -> dict[str, str]:
    text = resources.files("plait._dispatch").joinpath("schemas.txt").read_text("utf-8")
    return dict(line.split(" ", 1) for line in text.splitlines())  # type: ignore[misc]


@functools.cache
def overloads(name: str) -> dict[str, FunctionSchema]:
    """Returns the schemas of an inner function by the names of its overloads; none for one that is not listed."""
    line = _lines().get(name)
    if line is None:
        return {}
    found = [_schema(name, part) for part in line.split("; ")]
    return {s.overload_name or "default": s for s in found}
