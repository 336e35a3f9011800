"""What MkDocs is told beside mkdocs.yml: the API reference, the examples, and links to files outside docs/."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/README.md"
PACKAGE = ROOT / "python/plait"
FORGE = "https://github.com/plait-ml/plait/blob/main/"
log = logging.getLogger("mkdocs.hooks.plait")
# Where the API reference has what a file of the package defines, by file and name. Documents link to the file.
documented: dict[tuple[Path, str], str] = {}

# A page each; every class of those in PER_CLASS has one of its own. The package itself comes first.
MODULES = [
    "",
    "nn",
    "nn.functional",
    "nn.init",
    "nn.utils",
    "nn.utils.rnn",
    "nn.parallel",
    "optim",
    "optim.lr_scheduler",
    "optim.swa_utils",
    "linalg",
    "amp",
    "autograd",
    "autograd.graph",
    "cuda",
    "func",
    "serialization",
    "utils.checkpoint",
    "utils.data",
    "utils.tensorboard",
    "profiler",
    "plot",
    "distributed",
    "distributed.fsdp",
    "distributed.tensor",
    "distributed.pipelining",
    "distributed.checkpoint",
    "distributed.device_mesh",
    "distributions",
]
PER_CLASS = ("nn", "optim")


def public(package: griffe.Module, module: str) -> tuple[list[tuple[str, griffe.Object]], list[str]]:
    """Returns the documented classes and functions of a module, and the functions whose docstring only a call makes."""
    found, made = [], []
    scope = package[module] if module else package
    if scope.exports is not None:
        names = {str(name) for name in scope.exports}
    else:  # what a module imports for its own use is not public; what a package imports is
        names = scope.members.keys() - (set() if scope.is_init_module else scope.imports.keys())
    for name, member in sorted(scope.members.items()):
        if name.startswith("_") or name not in names:
            continue
        try:
            target = member.final_target if member.is_alias else member
        except griffe.AliasResolutionError:  # from another package, or made at import time
            continue
        if not target.path.startswith("plait."):
            continue
        if (target.is_class or target.is_function) and target.docstring:
            found.append((name, target))
        elif target.is_attribute:
            made.append(name)
    return found, made


def summary(target: griffe.Object) -> str:
    """Returns the first line of a docstring as the cell of a table."""
    line = target.docstring.value.splitlines()[0].replace("|", "\\|")
    return re.sub(r"(`[^`]*`)|([*\[])", lambda m: m[1] or f"\\{m[2]}", line)  # code shows a backslash


def operations() -> dict[str, str]:
    """Returns where docs/reference has each function of Python."""
    found = {}
    for page in sorted((ROOT / "docs/reference").glob("*.md")):
        entry = ""
        for line in page.read_text("utf-8").splitlines():
            if line.startswith("## "):
                entry = line[3:]
            elif match := re.match(r"- (?:Python|In place): `(plait\.[\w.]+)\(", line):
                found.setdefault(match[1], f"{page.name}#{entry.lower()}")
    return found


def tensor(package: griffe.Module, where: dict[str, str]) -> str:
    """Returns the page of the class Tensor: what it has beside operations."""
    members = []
    for name, member in sorted(package["Tensor"].final_target.all_members.items()):
        target = member.final_target if member.is_alias else member
        if not name.startswith("_") and target.docstring and f"plait.{name.removesuffix('_')}" not in where:
            members.append(name)
    about = (
        "[Operations](../reference/README.md) are methods too, under their names; those that end in `_` work in place."
    )
    options = f"    options: {{inherited_members: true, members: [{', '.join(members)}]}}"
    return f"# plait.Tensor\n\n{about}\n\n::: plait.Tensor\n{options}\n"


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the API reference, and the list of examples with its pictures."""
    loader = griffe.GriffeLoader(search_paths=[ROOT / "python"], allow_inspection=False)
    package = loader.load("plait")
    loader.expand_exports(package)
    loader.expand_wildcards(package)
    loader.resolve_aliases(external=False, implicit=True)
    where = operations()

    def add(path: str, text: str) -> None:
        files.append(File.generated(config, f"api/{path}.md", content=text))

    index = ["# Python API", "", "Operations are in the [reference](../reference/README.md). Modules:", ""]
    for module in MODULES:
        scope, full = (package[module], f"plait.{module}") if module else (package, "plait")
        documented.setdefault((scope.filepath, full), f"{module or full}.md")
        index.append(f"- [{full}]({module or full}.md): {scope.docstring.value.splitlines()[0]}")
        found, made = public(package, module)
        about = scope.docstring.value.replace("\n", "\n\n", 1)
        if not module:  # has every operation, which has an entry in the reference
            found = [(name, t) for name, t in found if name != "Tensor" and f"plait.{name}" not in where]
            made = []
            about += "\n\nThe [operations](../reference/README.md) are here too, and [`Tensor`](Tensor.md)."
            index.append(f"- [plait.Tensor](Tensor.md): {summary(package['Tensor'].final_target)}")
            add("Tensor", tensor(package, where))
        lines = [
            f"# {full}",
            "",
            about,
            "",
            "| name | what it is |",
            "| --- | --- |",
        ]
        below = []
        for name, target in found:
            path = f"{full}.{name}"
            own = module in PER_CLASS and target.is_class
            documented.setdefault(
                (target.filepath, name), f"{module}/{name}.md" if own else f"{module or full}.md#{path}"
            )
            if own:
                lines.append(f"| [`{name}`]({module}/{name}.md) | {summary(target)} |")
                add(f"{module}/{name}", f"# {name}\n\n::: {path}\n")
            else:
                lines.append(f"| [`{name}`](#{path}) | {summary(target)} |")
                below += ["", f"::: {path}"]
        lines += [
            f"| [`{name}`](../reference/{where[path]}) | |" for name in made if (path := f"{full}.{name}") in where
        ]
        add(module or full, "\n".join(lines + below) + "\n")
    add("index", "\n".join(index) + "\n")
    files.append(File.generated(config, "examples.md", content=examples()))
    for picture in sorted((ROOT / "examples/pictures").glob("*.svg")):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    return files


def examples() -> str:
    """Returns the list of examples, with links to the scripts on the forge."""
    text = EXAMPLES.read_text("utf-8")
    return re.sub(r"\]\((?!https?:|pictures/\w+\.svg|#)", f"]({FORGE}examples/", text)


def readme() -> str:
    """Returns the README as a part of Home, which has the title and lists the pages itself."""
    text = (ROOT / "README.md").read_text("utf-8").removeprefix("# Plait\n").partition("## Where to read on\n")[0]
    return re.sub(r"\]\((?!https?:)(docs/)?", lambda m: "](" if m[1] else "](../", text).strip()


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leads links to the package's files to the API reference and to others outside docs/ to the forge, titles excerpts
    with their file, and puts the README on Home.
    """
    if page.file.generated_by:
        return markdown
    here = Path(page.file.abs_src_path).parent

    def elsewhere(match: re.Match[str]) -> str:
        target = (here / match[1]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        if target == PACKAGE:
            return f"]({os.path.relpath(ROOT / 'docs/api/index.md', here)})"
        if target == EXAMPLES:
            return f"]({os.path.relpath(ROOT / 'docs/examples.md', here)}{match[2] or ''})"
        if not target.exists():
            log.warning("%s: the link %s leads nowhere", page.file.src_uri, match[1])
        return f"]({FORGE}{target.relative_to(ROOT)}{match[2] or ''})"

    def reference(match: re.Match[str]) -> str:
        file, name = (here / match[2]).resolve(), match[1].partition("(")[0]
        where = documented.get((file, name)) or documented.get((file, name.rpartition(".")[2]))
        if not where:
            log.warning("%s: the API reference has no %s of %s", page.file.src_uri, name, match[2])
            return match[0]
        return f"[`{match[1]}`]({os.path.relpath(ROOT / 'docs/api', here)}/{where})"

    if page.is_homepage:
        markdown = re.sub(r"^\[The README\].*$", lambda _: readme(), markdown, flags=re.M)
    markdown = re.sub(r"^( *```\w+) ([^\s\"]+)$", r'\1 title="\2"', markdown, flags=re.M)  # the file of an excerpt
    markdown = re.sub(r"\[`([^`]+)`\]\(([^)\s]*/python/plait/[^)\s]*\.py)\)", reference, markdown)
    return re.sub(r"\]\((\.\.?/[^)#\s]*)(#[^)\s]*)?\)", elsewhere, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Warns of a block of code that the page shows as text."""
    if "```" in html:
        log.warning("%s: a block of code is not understood: %.60r", page.file.src_uri, html[html.index("```") :])
    return html
