"""Writes signatures.json: the parameters of PyTorch's public functions, methods and classes.

Run it by hand where PyTorch is, with the version that the list is to say. Signatures alone are read: the names of the
parameters in order, their kinds and defaults, one signature for each overload. What is
private, deprecated or about names of dimensions is left out. Sources, the first that knows a name:

- `inspect.signature`, for what is written in Python;
- the stubs `_C/__init__.pyi` (methods), `_C/_VariableFunctions.pyi` and `nn/functional.pyi`, for what is compiled;
- the formats of the argument parser in the compiled library, for linalg, special and fft, which have no stubs.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import json
import pkgutil
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

PACKAGE = Path(torch.__file__).parent
HERE = Path(__file__).resolve().parent
SKIP = re.compile(
    r"_|(mkldnn|cudnn|miopen|q_|quantize|fbgemm|fake_quantize|sparse_|int_repr|ccol|crow|hspmm|sspaddmm)|.*_copy$"
)

MODULES = (
    "torch",
    "torch.linalg",
    "torch.special",
    "torch.fft",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.parallel",
    "torch.nn.utils",
    "torch.nn.utils.rnn",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.parametrizations",
    "torch.nn.attention",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.autograd",
    "torch.autograd.functional",
    "torch.autograd.graph",
    "torch.autograd.gradcheck",
    "torch.amp",
    "torch.func",
    "torch.random",
    "torch.serialization",
    "torch.utils",
    "torch.utils.data",
    "torch.utils.checkpoint",
    "torch.utils.dlpack",
    "torch.utils.hooks",
    "torch.distributed",
    "torch.distributed.nn.functional",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.fsdp.wrap",
    "torch.distributed.fsdp.sharded_grad_scaler",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.pipelining",
    "torch.distributed.algorithms.join",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributions",
    "torch.distributions.transforms",
    "torch.cuda",
    "torch.cuda.amp",
    "torch.cpu",
    "torch.profiler",
    "torch.testing",
    "torch.jit",
)


def default(value: Any) -> str:
    """Returns the text of a default: a literal, or the name of an object."""
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value).rpartition(".")[2]
    if isinstance(value, torch.Size):
        return "()"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str | tuple | list | dict):
        text = repr(value)
        try:
            ast.literal_eval(text)
            return text
        except (ValueError, SyntaxError):
            return repr(type(value).__name__)
    if hasattr(value, "name") and isinstance(getattr(type(value), "__members__", None), dict | type(type.__dict__)):
        return repr(f"{value.name}")
    return repr(getattr(value, "__name__", type(value).__name__))


def written(signature: inspect.Signature, drop_first: bool) -> str:
    """Returns the text of a signature without types."""
    parameters = list(signature.parameters.values())
    for p in reversed(signature.parameters.values()):  # private ones are kept where public ones stand behind them
        if p.default is not p.empty and (p.name[0] == "_" or p.name == "names"):
            parameters.remove(p)
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL):
            break
    if drop_first and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    out, star = [], False
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not star:
            out.append("*")
            star = True
        text = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        star = star or p.kind is p.VAR_POSITIONAL
        out.append(text if p.default is p.empty else f"{text}={default(p.default)}")
        if p.kind is p.POSITIONAL_ONLY and (
            i + 1 == len(parameters) or parameters[i + 1].kind is not p.POSITIONAL_ONLY
        ):
            out.append("/")
    return f"({', '.join(out)})"


def stub_text(f: ast.FunctionDef, drop_first: bool) -> str:
    """Returns the text of a signature in a stub, without types."""
    a = f.args
    for part in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
        if part is not None:
            part.annotation = None
    if drop_first and a.args:
        del a.args[0]
    elif a.args and a.args[0].arg == "self":  # a number in the place of the first tensor
        a.posonlyargs.append(a.args.pop(0))
    for i in range(len(a.kwonlyargs) - 1, -1, -1):
        if a.kwonlyargs[i].arg == "names" and a.kw_defaults[i] is not None:
            del a.kwonlyargs[i], a.kw_defaults[i]
    for node in ast.walk(a):  # torch.contiguous_format and the like: the last name
        for field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for i, v in enumerate(values):
                if isinstance(v, ast.Attribute):
                    values[i] = ast.Name(v.attr)
            if isinstance(value, list):
                setattr(node, field, values)
    return f"({ast.unparse(a)})"


@functools.cache
def stubs(path: str, of_class: str = "") -> dict[str, list[str]]:
    """Returns the signatures of a stub file, by name: of its functions, or of one class's methods."""
    body = ast.parse((PACKAGE / path).read_text("utf-8")).body
    if of_class:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == of_class).body
    out: dict[str, list[str]] = {}
    for f in body:
        if isinstance(f, ast.FunctionDef) and not any(getattr(d, "id", "") == "property" for d in f.decorator_list):
            names = tuple(a.arg for a in (*f.args.args, *f.args.kwonlyargs) if a.arg not in ("self", "input", "out"))
            text = stub_text(f, bool(of_class))
            if "names" in text or (f.name, names) in deprecated():
                continue
            if text not in out.setdefault(f.name, []):
                out[f.name].append(text)
    return out


@functools.cache
def library() -> bytes:
    """Returns the compiled library, which has the formats of its argument parser."""
    return (PACKAGE / "lib/libtorch_python.so").read_bytes()


@functools.cache
def deprecated() -> set[tuple[str, tuple[str, ...]]]:
    """Returns the overloads that the parser says are deprecated: their names and parameters, but for the first's."""
    out = set()
    for found in re.finditer(rb"\0(\w+)\(([^\0]*)\)\|deprecated(?=\0)", library()):
        words = [part.partition("=")[0].split()[-1] for part in found[2].decode().split(", ") if part != "*"]
        out.add((found[1].decode(), tuple(w for w in words if w not in ("self", "input", "out"))))
    return out


@functools.cache
def formats() -> dict[str, list[str]]:
    """Returns the signatures that the compiled argument parser knows, by name, those of functions alone."""
    out: dict[str, list[str]] = {}
    for found in re.finditer(rb"\0((?:linalg|special|fft)_\w+)\(([^\0]*)\)(?=\0)", library()):
        name, inside = found[1].decode(), found[2].decode()
        parts = []
        for part in re.split(r", (?![^\[({]*[\])}])", inside):
            if part == "*":
                parts.append(part)
                continue
            left, _, value = part.partition("=")
            word = left.split()[-1]
            if word == "self":  # a number in the place of the first tensor
                word = "self, /"
            value = re.sub(r"\bNone\b|c10::nullopt", "None", value)
            value = {"true": "True", "false": "False"}.get(value, value.replace("{", "(").replace("}", ",)"))
            parts.append(f"{word}={value}" if value else word)
        text = f"({', '.join(parts)})"
        if text not in out.setdefault(name, []):
            out[name].append(text)
    return out


def branches(function: Any) -> Any:
    """Returns the function with all parameters behind one that chooses by a flag."""
    if (code := getattr(function, "__code__", None)) is not None:
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        if "if_true" in cells:
            return cells["if_true"].cell_contents
    return function


# The functions with all parameters behind others that choose by a flag.
SPECIAL = {
    "torch.unique": torch.functional._unique_impl,
    "torch.unique_consecutive": torch.functional._unique_consecutive_impl,
    "torch.lu": torch.functional._lu_impl,
}


def signatures(path: str, name: str, thing: Any, method: bool = False) -> list[str]:
    """Returns the signatures of a function, the overloads of a compiled one."""
    thing = SPECIAL.get(f"{path}.{name}", thing)
    if inspect.isfunction(thing := branches(thing)):
        signature = inspect.signature(thing)
        kinds = [p.kind for p in signature.parameters.values()]
        known = {"torch": "_C/_VariableFunctions.pyi", "torch.nn.functional": "nn/functional.pyi"}.get(path)
        if (
            kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
            and known
            and name in stubs(known)
        ):
            return stubs(known)[name]
        return [written(signature, method)]
    compiled = getattr(thing, "__name__", "")
    if path == "torch.nn.functional":
        return stubs("nn/functional.pyi").get(name) or stubs("_C/_VariableFunctions.pyi").get(compiled, [])
    if path in ("torch.linalg", "torch.special", "torch.fft"):
        return formats().get(compiled, [])
    if path == "torch" and not isinstance(thing, type):
        return stubs("_C/_VariableFunctions.pyi").get(name) or stubs("_C/__init__.pyi").get(name, [])
    try:
        return [written(inspect.signature(thing), method)]
    except (TypeError, ValueError):
        return []


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yields the public methods of a class that are not a base's."""
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(value, staticmethod):
            yield name, (value.__func__, False)
        elif isinstance(value, classmethod):
            yield name, (value.__func__, True)
        elif inspect.isfunction(value):
            yield name, (value, True)


def public(module: Any) -> list[str]:
    """Returns a module's public names."""
    names = list(getattr(module, "__all__", None) or [n for n in vars(module) if not inspect.ismodule(vars(module)[n])])
    if module is torch:
        names += [*stubs("_C/_VariableFunctions.pyi"), *dir(torch)]
    if module is torch.nn.functional:
        names += [*stubs("nn/functional.pyi"), *dir(torch.nn.functional)]
    if module in (torch.linalg, torch.special, torch.fft):
        names += [n for n in dir(module) if callable(getattr(module, n))]
    return sorted({n for n in names if not SKIP.match(n)})


def collect(path: str) -> dict[str, list[str]]:
    """Returns the signatures of a module."""
    module = importlib.import_module(path)
    out: dict[str, list[str]] = {}
    for name in public(module):
        thing = getattr(module, name, None)
        if not callable(thing) or not (getattr(thing, "__module__", None) or "torch").startswith("torch"):
            continue
        if path != "torch" and getattr(torch, name, None) is thing and not path.startswith("torch.nn"):
            continue
        if not isinstance(thing, type):
            if found := signatures(path, name, thing):
                out[name] = found
            continue
        if issubclass(thing, torch.Tensor | torch.dtype | torch.memory_format | enum.Enum):
            continue
        try:
            plain = [written(inspect.signature(thing), False)]
        except (TypeError, ValueError):
            continue
        overloads = typing.get_overloads(thing.__init__) if inspect.isfunction(thing.__init__) else []
        found = [written(inspect.signature(f), True) for f in overloads]
        out[name] = [text for text in found if text != "(*args, **kwargs)"] or plain
        for method, (function, bound) in methods(thing):
            out[f"{name}.{method}"] = [written(inspect.signature(function), bound)]
    return {n: found for n, found in out.items() if found != ["(*args, **kwargs)"]}  # which says nothing


def modules() -> list[str]:
    """Returns PyTorch's public modules, and those of its larger packages."""
    out = []
    for package in ("", ".autograd", ".distributed", ".nn", ".nn.utils", ".optim", ".utils", ".utils.data"):
        path = PACKAGE.joinpath(*package.split("."))
        out += [f"torch{package}.{m.name}" for m in pkgutil.iter_modules([str(path)]) if not m.name.startswith("_")]
    return sorted(out)


def tensor() -> dict[str, list[str]]:
    """Returns the signatures of a tensor's methods."""
    compiled = stubs("_C/__init__.pyi", "TensorBase")
    out = {n: s for n, s in compiled.items() if not SKIP.match(n)}
    for name, value in vars(torch.Tensor).items():
        if not name.startswith("_") and inspect.isfunction(value):
            out[name] = [written(inspect.signature(value), True)]
    return dict(sorted(out.items()))


def main() -> None:
    """Writes the file."""
    data = {"torch": {}, "torch.Tensor": tensor()}
    for path in MODULES:
        try:
            data[path] = collect(path)
        except ImportError as error:
            print(f"{path}: {error}", file=sys.stderr)
    lines = [f'"version": {json.dumps(torch.__version__.split("+")[0])}']
    lines.append(f'"modules": {json.dumps(modules())}')
    for path, names in data.items():
        rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(s)}" for n, s in names.items())
        lines.append(f'"{path}": {{\n{rows}\n}}')
    (HERE / "signatures.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    print({p: len(n) for p, n in data.items()}, sum(map(len, data.values())))


if __name__ == "__main__":
    main()
