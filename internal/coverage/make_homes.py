"""Writes python/plait/torch/_homes.py: in which modules PyTorch has names that a package above them has too.

Run it by hand where PyTorch is, with the version that the list is to say.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = (
    "torch.nn.parallel", "torch.nn.utils", "torch.nn", "torch.optim", "torch.autograd", "torch.cuda.amp", "torch.cuda",
    "torch.utils.data", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed",
    "torch.distributions", "torch.fx", "torch.multiprocessing", "torch.profiler", "torch",
)  # fmt: skip
BELOW_TOP = ("torch.functional", "torch.storage", "torch.types")


def main() -> None:
    """Writes the file."""
    rows: dict[str, str] = {}
    for package in PACKAGES:
        owner = importlib.import_module(package)
        modules = pkgutil.walk_packages(owner.__path__, f"{package}.") if package != "torch" else ()
        for name in [m.name for m in modules if package != "torch"] or BELOW_TOP:
            below = name.removeprefix(f"{package}.")
            if name in rows or "_" in (p[0] for p in below.split(".")) or below.count(".") > 1:
                continue
            try:
                home = importlib.import_module(name)
            except ImportError:
                continue
            above, _, last = name.rpartition(".")
            if getattr(importlib.import_module(above), last, home) is not home:  # a function has the name
                continue
            found = [
                n
                for n, v in sorted(vars(home).items())
                if n[0] != "_" and getattr(v, "__module__", None) == name and getattr(owner, n, None) is v
            ]
            if found:
                rows[name] = " ".join([package, *found])
    lines = [
        "# Written by internal/coverage/make_homes.py, beside PyTorch; do not edit.",
        '"""Where PyTorch has names: by module, the package above that has them too, and the names."""',
        "",
        "HOMES = {",
    ]
    for name, row in sorted(rows.items()):
        lines.append(f'    "{name}": """')
        line = ""
        for word in row.split():
            if len(line) + len(word) > 110:
                lines.append(line.rstrip())
                line = ""
            line += word + " "
        lines += [line.rstrip(), '""",']
    (ROOT / "python/plait/torch/_homes.py").write_text("\n".join([*lines, "}", ""]), "utf-8")


main()
