"""Writes docs/libraries.md from facts.json, which tests_py/test_libraries.py holds the libraries to."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs/libraries.md"


def page() -> str:
    """Returns the text of the page."""
    facts = json.loads((HERE / "facts.json").read_text("utf-8"))
    lines = [
        "# Libraries that run as they are",
        "",
        "These libraries are written for PyTorch, and run behind [plait.torch](torch.md) with no line changed. Of each",
        "case the loss, the norm of its gradients, parameters and buffers after a step and the loss then, or of",
        f"functions their values, equal in float64 what PyTorch {facts.pop('torch')} gave, to five digits. In float32",
        "the loss does to four; so do the others, unless PyTorch's own are far from those of float64: where a relu",
        "goes the other way by rounding, gradients jump. Written by `tests_py/libraries/page.py`;",
        "`tests_py/test_libraries.py` makes an environment without PyTorch and compares.",
        "",
        "| library | version | cases |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {row['version']} | {', '.join(sorted(row['cases']))} |" for name, row in sorted(facts.items())
    ]
    lines += [
        "",
        "Install a library with `pip install --no-deps`, or pip installs PyTorch with it. Compiled extensions need",
        "PyTorch's C++ library: those of torchvision, such as `nms`, raise.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
