"""docs/reference prints the signatures that Python's functions have, and has some for every operation."""

import re
from pathlib import Path

import pytest
from test_signatures import load

ROOT = Path(__file__).parent.parent
ANEW = "run internal/coverage/coverage.py, and then go generate ./capi/bind"
coverage = load("coverage")
PAGES = sorted(p for p in (ROOT / "docs/reference").glob("*.md") if p.stem != "README")


def test_signatures_are_written_down():
    assert (ROOT / "internal/coverage/python.txt").read_text("utf-8") == coverage.operations(), ANEW


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_printed_signature_is_the_real_one(page):
    for entry in page.read_text("utf-8").split("\n## ")[1:]:
        printed = re.findall(r"^- (?:Python|In place): `((?:plait|Tensor)\.[^`]*)`$", entry, re.MULTILINE)
        name = entry.splitlines()[0]
        assert printed, (
            f"{name}: write its function in the module where PyTorch has it, such as plait.special, and {ANEW}"
        )
        for text in printed:
            path = text.partition("(")[0]
            assert text == coverage.of_path(path if path.startswith("plait.") else f"plait.{path}"), ANEW
