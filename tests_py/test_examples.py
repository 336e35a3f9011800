"""The examples run, and learn."""

from __future__ import annotations

import gc
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script imports what lies beside it."""
    monkeypatch.syspath_prepend(EXAMPLES / "gpt")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name.replace('/', '_')}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SMALL = "--context 16 --width 16 --layers 2 --heads 2 --characters 20000 --sample 1 --lr 1e-2 "


def test_gpt_learns(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = (
        "--steps 40 --batch 8 --context 32 --width 32 --layers 1 --heads 2 --characters 200000 --sample 20 --lr 1e-2"
    )
    start, end = example("gpt/one_device").main(sizes.split())
    assert start > 4
    assert end < start - 0.8
    said = capsys.readouterr().out
    assert "\ndef " in said
    assert re.search(r"^ \d\.\d\d \|\*", said, re.M), "the curve begins at its highest"


def test_gpt_repeats_itself() -> None:
    train = example("gpt/one_device").main
    sizes = SMALL + "--steps 3 --batch 2 --dropout 0.1 --seed "
    runs = [train((sizes + seed).split()) for seed in ("1", "1", "2")]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize(
    ("way", "options"),
    [
        ("ddp", "--batch 5 --devices cpu:0 cpu:1 cpu:2"),
        ("fsdp", "--batch 4 --devices cpu:0 cpu:1"),
        ("pipeline", "--batch 5 --schedule 1f1b --chunks 3"),
        ("pipeline", "--batch 5 --schedule zb-v --chunks 3"),
        ("tensor_parallel", "--batch 4 --devices cpu:0 cpu:1"),
    ],
)
def test_gpt_on_several_devices_is_as_on_one(way: str, options: str, capsys: pytest.CaptureFixture[str]) -> None:
    alone = example("gpt/one_device").main(f"{SMALL} --steps 4 {options[:9]}".split())
    capsys.readouterr()
    gc.collect()  # what else is in memory would count
    together = example(f"gpt/{way}").main(f"{SMALL} --steps 4 {options}".split())
    assert together == pytest.approx(alone, rel=1e-5)
    said = capsys.readouterr().out
    if way == "fsdp":
        peak, allowed = re.search(r"at most ([\d,]+) bytes .* allows ([\d,]+)\n", said).groups()
        assert int(peak.replace(",", "")) <= int(allowed.replace(",", ""))
    if way == "tensor_parallel":
        assert "rank 0 of 2 has 6,576 of" in said


def test_digits_are_told_apart() -> None:
    assert example("digits").main(["--epochs", "4"]) >= 0.97


def outputs(cell: nbformat.NotebookNode) -> list[str]:
    """Returns the text that a cell printed or showed."""
    return [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs]


def test_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook is kept with its outputs, and every cell runs, with fewer steps."""
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(EXAMPLES / "walkthrough.ipynb", as_version=4)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1)), "kept as one run left it"
    kept = [outputs(c) for c in cells]
    pictures = [o for c in cells for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2 and not any("Traceback" in text for texts in kept for text in texts)
    assert "epochs = " in cells[0].source and "steps = " in cells[0].source
    cells[0].source = "epochs, steps = 1, 4"
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}}).execute()
    for cell, texts in zip(cells, kept, strict=True):
        assert bool(cell.outputs) == bool(texts), cell.source
    assert [outputs(c) for c in cells[1:3]] == kept[1:3]  # these do not depend on the steps


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gpt/one_device", "--steps 0", "must be at least 1"),
        ("gpt/one_device", "--width 16 --heads 3", "--width 16 must be a multiple of --heads 3"),
        ("gpt/one_device", "--text nowhere", "--text nowhere is not a folder"),
        ("gpt/one_device", "--device tpu", "device: unknown type 'tpu'"),
        ("gpt/ddp", "--devices cpu:0 gpu:99", "GPU"),
        ("gpt/pipeline", "--schedule 2f2b", "invalid choice: '2f2b'"),
        ("digits", "--epochs 0", "must be at least 1"),
    ],
)
def test_examples_say_which_argument_is_wrong(
    name: str, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        example(name).main(arguments.split())
    assert caught.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_gpt_says_that_there_is_too_little_text(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("def f(): pass\n")
    with pytest.raises(SystemExit, match=r"14 characters of Python in .*: too few to see 64 at once"):
        example("gpt/one_device").main(["--text", str(tmp_path)])
