"""Compares the package's names and signatures with PyTorch's and writes docs/coverage.md, and python.txt.

The lists beside this file hold the names, a file for each area, and signatures.json the signatures; python.txt has ours
of operations, for docs/reference. Run it with the package importable; with --names it
only writes python/plait/_names.py, by which the package tells a name that is not there yet from an unknown one.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Area, title, and the object whose names are compared.
AREAS = [
    ("tensor", "Tensor", "plait:Tensor"),
    ("top", "plait", "plait"),
    ("linalg", "plait.linalg", "plait.linalg"),
    ("special", "plait.special", "plait.special"),
    ("sparse", "plait.sparse", "plait.sparse"),
    ("fft", "plait.fft", "plait.fft"),
    ("autograd", "plait.autograd", "plait.autograd"),
    ("func", "plait.func", "plait.func"),
    ("nn", "plait.nn", "plait.nn"),
    ("functional", "plait.nn.functional", "plait.nn.functional"),
    ("init", "plait.nn.init", "plait.nn.init"),
    ("nn_utils", "plait.nn.utils", "plait.nn.utils"),
    ("nn_utils_rnn", "plait.nn.utils.rnn", "plait.nn.utils.rnn"),
    ("optim", "plait.optim", "plait.optim"),
    ("lr_scheduler", "plait.optim.lr_scheduler", "plait.optim.lr_scheduler"),
    ("data", "plait.utils.data", "plait.utils.data"),
    ("distributed", "plait.distributed", "plait.distributed"),
    ("distributions", "plait.distributions", "plait.distributions"),
]


# Modules that need a package which may not be installed here.
OPTIONAL = {"plait.utils.tensorboard"}


def names(area: str) -> list[str]:
    """Returns PyTorch's public names of an area."""
    return (HERE / f"{area}.txt").read_text("utf-8").split()


def resolve(path: str) -> Any:
    """Returns a module, or a class in one after a colon; None if it is not there."""
    module, _, attribute = path.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError:
        return None
    return getattr(found, attribute) if attribute else found


def has(owner: Any, name: str) -> bool:
    """Whether a name is there, without calling properties of classes."""
    if owner is None:
        return False
    if isinstance(owner, type):
        return any(name in c.__dict__ for c in owner.__mro__)
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


def measure() -> list[tuple[str, list[str], list[str]]]:
    """Returns for each area its title, and which of PyTorch's names are there and which are not."""
    out = []
    for area, title, path in AREAS:
        owner = resolve(path)
        present = [n for n in names(area) if has(owner, n)]
        out.append((title, present, [n for n in names(area) if n not in set(present)]))
    return out


def signatures() -> list[str]:
    """Returns the lines about signatures, and about modules that are left out."""
    sys.path.insert(0, str(HERE))
    import bind

    lines = [
        "",
        "## Signatures",
        "",
        "A name is worth what can be called under it. So PyTorch's overloads of everything that is there, functions,",
        "methods and classes, are held against the signatures here: each is called by position, by keyword, with what",
        "is required alone, and with each optional argument alone. An overload counts if every argument arrives at the",
        "parameter of its name and defaults are equal. `internal/coverage/differences.txt` says why the others differ.",
        "",
        "| module | overloads that agree | of |",
        "| --- | ---: | ---: |",
    ]
    found = bind.compare()
    called = [(n, w) for n, w, reason in bind.known() if reason == "called"]
    for module, names in bind.golden().items():
        agree = total = 0
        for name, overloads in names.items():
            if (path := f"{module}.{name}") in found:
                left = [
                    d for d in found[path] if not any(fnmatchcase(path, n) and fnmatchcase(d, w) for n, w in called)
                ]
                agree += bind.agreeing(overloads, left)
                total += len(overloads)
        if total:
            lines.append(f"| `{module.replace('torch', 'plait', 1)}` | {agree} | {total} |")
    ours = {m: m.replace("torch", "plait", 1) for m in bind.modules()}
    missing = [m for m, path in ours.items() if resolve(path) is None and path not in OPTIONAL]
    lines += ["", "## Modules of PyTorch that are left out", "", ", ".join(f"`{m}`" for m in missing) + "."]
    return lines


def missing() -> dict[tuple[str, str], str]:
    """Returns why names are not there, by title of the area and name, as missing.txt says."""
    lines = (HERE / "missing.txt").read_text("utf-8").splitlines()
    rows = [line.split("  ") for line in lines if line and not line.startswith("#")]
    return {(title, name): reason for title, name, reason in rows}


def page() -> str:
    """Returns the text of docs/coverage.md."""
    areas, reasons = measure(), missing()
    lines = [
        "# Which of PyTorch's names are there",
        "",
        "PyTorch's documented public names, without those of quantised tensors, of single vendors'",
        "devices and of deprecated features. A name that is not there raises `NotImplementedError` and says so.",
        "`plait.array_api` has the names of the array API standard: see [array_api.md](array_api.md). Written by",
        "`internal/coverage/coverage.py`.",
        "",
        "| module | there | of |",
        "| --- | ---: | ---: |",
    ]
    lines += [f"| `{title}` | {len(there)} | {len(there) + len(not_there)} |" for title, there, not_there in areas]
    lines += signatures()
    for title, there, not_there in areas:
        lines += ["", f"## {title}"]
        if not_there:
            because: dict[str, list[str]] = {}
            for n in not_there:
                because.setdefault(reasons[title, n], []).append(f"`{n}`")
            lines += ["", *(f"Not there: {', '.join(found)}: {reason}." for reason, found in because.items())]
        if there:
            lines += ["", "There: " + ", ".join(f"`{n}`" for n in there) + "."]
    return "\n".join(lines) + "\n"


# Where operations are found, and what their names begin with that is not said there.
PLACES = [
    ("plait", ""),
    ("plait.Tensor", ""),
    ("plait.nn.functional", ""),
    ("plait.special", "special_"),
    ("plait.fft", "fft_"),
    ("plait.linalg", "linalg_"),
]

# Operations that Python has under other names: where, and in which area.
OTHER_NAMES = {
    "add_scaled": "plait.add",
    "col2im": "plait.nn.functional.fold",
    "csr_matmul": "plait.sparse.mm",
    "csr_sampled_matmul": "plait.sparse.sampled_addmm",
    "gru_layer": "plait.nn.GRU",
    "im2col": "plait.nn.functional.unfold",
    "lstm_layer": "plait.nn.LSTM",
    "mT": "plait.Tensor.mT",
    "slice": "plait.Tensor.__getitem__",
    "tensor_split_at": "plait.tensor_split",
    "trunc_divide": "plait.div",
    "trunc_normal_": "plait.nn.init.trunc_normal_",
}


def shown(signature: inspect.Signature) -> str:
    """Returns a signature as the reference prints it: annotations and defaults as they are written."""
    out = []
    for p in signature.parameters.values():
        kind = p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
        default = getattr(p.default, "__name__", None) or repr(p.default)
        out.append(p.replace(annotation=_Word(kind), default=p.empty if p.default is p.empty else _Word(default)))
        if p.annotation is p.empty:
            out[-1] = out[-1].replace(annotation=p.empty)
    result = signature.return_annotation
    return str(inspect.Signature(out)) + ("" if result is inspect.Signature.empty else f" -> {result}")


class _Word:
    """Prints as the words it is made of, as an annotation and as a default."""

    __module__ = "builtins"

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def operations() -> str:
    """Returns the text of python.txt: an operation's name and one of its functions in each line."""
    from plait import _ops
    from plait._ops import functions

    lines = ["# Written by internal/coverage/coverage.py: operations, and their functions in Python."]
    for name in sorted(_ops.__all__):
        paths = [f"{place}.{name.removeprefix(prefix)}" for place, prefix in PLACES]
        if name in OTHER_NAMES:
            paths.append(OTHER_NAMES[name])
        if name in functions._OWN:  # the reference has these two from its row
            paths = [path for path in paths if path.rpartition(".")[0] not in ("plait", "plait.Tensor")]
        for path in paths:
            if (text := of_path(path)) is not None:
                lines.append(f"{name} {text}")
    return "\n".join([*lines, ""])


def of_path(path: str) -> str | None:
    """Returns a function or a class with its signature, a property without one; None if there is no such."""
    import plait

    owner: Any = plait
    for part in path.split(".")[1:-1]:
        owner = getattr(owner, part)
    name = path.rpartition(".")[2]
    spaces = [vars(c) for c in owner.__mro__] if isinstance(owner, type) else [vars(owner)]
    found = next((space[name] for space in spaces if name in space), None)
    shown_path = path.removeprefix("plait.") if isinstance(owner, type) else path
    if isinstance(found, property):
        return shown_path
    if not inspect.isfunction(found) and not (isinstance(found, type) and path in OTHER_NAMES.values()):
        return None
    signature = inspect.signature(found)
    if isinstance(owner, type):
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    if isinstance(found, type):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    return shown_path + shown(signature)


def module() -> str:
    """Returns the text of python/plait/_names.py."""
    lines = [
        "# Code generated by internal/coverage/coverage.py; DO NOT EDIT.",
        '"""PyTorch\'s public names by area."""',
        "",
        "NAMES = {",
    ]
    for area, _, _ in AREAS:
        lines.append(f'    "{area}": """')
        row = ""
        for n in names(area):
            if len(row) + len(n) > 110:
                lines.append(row.rstrip())
                row = ""
            row += n + " "
        lines += [row.rstrip(), '""",']
    return "\n".join([*lines, "}", ""])


def main() -> None:
    """Writes the files."""
    (ROOT / "python/plait/_names.py").write_text(module(), "utf-8")
    if "--names" not in sys.argv[1:]:
        sys.path.insert(0, str(ROOT / "python"))
        (ROOT / "docs/coverage.md").write_text(page(), "utf-8")
        (HERE / "python.txt").write_text(operations(), "utf-8")


if __name__ == "__main__":
    main()
