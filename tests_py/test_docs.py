"""Python in the documents runs, and prints what it says; the picture is that of the report."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("benchmarks/*.md"),
]
BLOCKS = [
    pytest.param(code, id=f"{path.relative_to(ROOT)}-{i}")
    for path in sorted(DOCUMENTS)
    for i, code in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S), start=1)
]


@pytest.mark.parametrize("code", BLOCKS)
def test_python_block(code: str, tmp_path: Path) -> None:
    """A block is a whole program; its comment "# Output:", if there is one, says what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if "# Output:\n" in code:
        wanted = code.partition("# Output:\n")[2]
        assert done.stdout.strip() == re.sub(r"^# ?", "", wanted, flags=re.M).strip()


def test_readme_has_python() -> None:
    assert any(p.id.startswith("README.md") for p in BLOCKS)


def test_picture_is_of_the_report() -> None:
    spec = importlib.util.spec_from_file_location("docs_picture", ROOT / "internal/docs/picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PICTURE.read_text("utf-8") == module.picture()
    passes = [sum(map(len, module.spans(name))) for name, _ in module.SCHEDULES]
    assert passes == [4 * 8 * 2, 8 * 8 * 3]  # stages, micro-batches, passes of each
