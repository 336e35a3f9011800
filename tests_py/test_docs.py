"""Python in the documents runs, and prints what it says; the picture is that of the report."""

from __future__ import annotations

import importlib.util
import re
import shutil
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
TUTORIALS, PICTURES = ROOT / "docs/tutorials", ROOT / "docs/pictures"
END = "\x1e"  # what is printed after each piece of a program


def programs() -> list[object]:
    """Returns the documents' programs: a block is one, and the blocks of a tutorial's page are the pieces of one."""
    found = []
    for path in sorted(DOCUMENTS):
        name = path.relative_to(ROOT)
        blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S)
        if path.parent == TUTORIALS:
            found.append(pytest.param(blocks, id=str(name)))
        else:
            found += [pytest.param([code], id=f"{name}-{i}") for i, code in enumerate(blocks, start=1)]
    return found


BLOCKS = programs()


@pytest.mark.parametrize("pieces", BLOCKS)
def test_python_block(pieces: list[str], tmp_path: Path) -> None:
    """The comment "# Output:" that a piece of a program ends with, if there is one, says what it prints."""
    code = "".join(f"{piece}\nprint({END!r}, flush=True)\n" for piece in pieces)
    warnings = ["-W", "error", "-W", "default:rank "]  # machines that run tests may be busy, and ranks late
    done = subprocess.run(
        [sys.executable, *warnings, "-c", code], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *parts, after = done.stdout.split(f"{END}\n")
    assert not after
    for piece, printed in zip(pieces, parts, strict=True):
        if "# Output:\n" in piece:
            wanted = piece.partition("# Output:\n")[2]
            assert printed.strip() == re.sub(r"^# ?", "", wanted, flags=re.M).strip()
    for picture in tmp_path.glob("*.svg"):
        if (PICTURES / picture.name).exists():
            assert picture.read_text("utf-8") == (PICTURES / picture.name).read_text("utf-8"), picture.name


def test_pictures_are_made() -> None:
    saved = re.findall(r'save\("(\w+\.svg)"\)', "".join("".join(p.values[0]) for p in BLOCKS))
    assert {p.name for p in PICTURES.iterdir()} <= {*saved, "pipelines.svg"}


def test_readme_has_python() -> None:
    assert any(p.id.startswith("README.md") for p in BLOCKS)


def test_picture_is_of_the_report() -> None:
    spec = importlib.util.spec_from_file_location("docs_picture", ROOT / "internal/docs/picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PICTURE.read_text("utf-8") == module.picture()
    passes = [len(module.spans(name)) for name, _ in module.SCHEDULES]
    assert passes == [4 * 8 * 2, 8 * 8 * 3]  # stages, micro-batches, passes of each


def test_figures_are_of_the_reports() -> None:
    """Each row of the README's table has the command and, rounded, the figures of the report that it names."""
    rows = re.findall(
        r"^\|(.*)\|(.*)\| `(.*)` \(\[report\]\((.*)\)\) \|$", (ROOT / "README.md").read_text("utf-8"), re.M
    )
    assert len(rows) == 5
    for what, figures, command, report in rows:
        text = (ROOT / report).read_text("utf-8")
        assert command in text, what
        measured = [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
        for figure in re.findall(r"(?<!PyTorch )\b(\d+\.(\d+))( MB)?", figures):
            scale = 1e6 if figure[2] else 1
            assert any(round(m / scale, len(figure[1])) == float(figure[0]) for m in measured), (what, figure)


@pytest.mark.parametrize("named", ["", "/dev/null"])
def test_without_a_browser_the_site_is_not_tested(named: str, tmp_path: Path) -> None:
    bash = shutil.which("bash") or ""
    done = subprocess.run(
        [bash, str(ROOT / "internal/make/browser")],
        check=False,
        env={"PATH": str(tmp_path), "CHROME_BIN": named},
        capture_output=True,
        text=True,
    )
    if not named and done.returncode == 0:
        pytest.skip("the browser of macOS is not on the path")
    said = "at CHROME_BIN=/dev/null; install" if named else "runs; install"
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert said in done.stderr
