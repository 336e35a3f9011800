"""The examples run, and learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gpt_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--steps 40 --batch 8 --context 32 --width 32 --layers 1 --heads 2 --characters 200000 --sample 20"
    picture = tmp_path / "loss.png"
    start, end = example("train_gpt").main([*sizes.split(), "--lr", "1e-2", "--plot", str(picture)])
    assert start > 4
    assert end < start - 0.8
    assert picture.stat().st_size > 1000
    assert "\ndef " in capsys.readouterr().out


def test_gpt_repeats_itself(tmp_path: Path) -> None:
    sizes = (
        "--steps 3 --batch 2 --context 16 --width 16 --layers 1 --heads 2 --characters 20000 --sample 1 --dropout 0.1"
    )
    train = example("train_gpt").main
    runs = [train([*sizes.split(), "--seed", seed, "--plot", str(tmp_path / "loss.png")]) for seed in ("1", "1", "2")]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("parallel", ["dp", "ddp"])
def test_gpt_on_several_devices_is_as_on_one(tmp_path: Path, parallel: str) -> None:
    sizes = (
        "--steps 5 --batch 5 --context 16 --width 16 --layers 1 --heads 2 --characters 20000 --sample 1 --dropout 0 "
        f"--lr 1e-2 --plot {tmp_path / 'loss.png'}"
    ).split()
    train = example("train_gpt").main
    alone, together = train(sizes), train([*sizes, "--parallel", parallel, "--devices", "cpu:0", "cpu:1", "cpu:2"])
    assert together == pytest.approx(alone, rel=1e-5)


def test_gpt_in_a_pipeline_is_as_on_one_device(tmp_path: Path) -> None:
    sizes = (
        "--steps 4 --batch 5 --context 16 --width 16 --layers 2 --heads 2 --characters 20000 --sample 1 --dropout 0 "
        f"--lr 1e-2 --plot {tmp_path / 'loss.png'}"
    ).split()
    train = example("train_gpt").main
    alone = train(sizes)
    for schedule in ("1f1b", "zb-v"):
        together = train([*sizes, "--parallel", "pipeline", "--schedule", schedule, "--chunks", "3"])
        assert together == pytest.approx(alone, rel=1e-5)


def test_gpt_divided_over_ranks_is_as_on_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = (
        "--steps 5 --batch 4 --context 16 --width 16 --layers 2 --heads 2 --characters 20000 --sample 1 --dropout 0 "
        f"--lr 1e-2 --plot {tmp_path / 'loss.png'}"
    ).split()
    train = example("train_gpt").main
    alone, together = train(sizes), train([*sizes, "--parallel", "fsdp", "--devices", "cpu:0", "cpu:1"])
    assert together == pytest.approx(alone, rel=1e-5)
    assert "rank 1: at most" in capsys.readouterr().out


def test_digits_are_told_apart() -> None:
    assert example("digits").main(["--epochs", "4"]) >= 0.97


def test_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs, with fewer steps."""
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(EXAMPLES / "walkthrough.ipynb", as_version=4)
    assert not any(c.get("outputs") for c in notebook.cells), "the notebook is kept without outputs"
    sizes = next(c for c in notebook.cells if c.cell_type == "code")
    assert "epochs = " in sizes.source and "steps = " in sizes.source
    sizes.source = "epochs, steps = 1, 4"
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}}).execute()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("train_gpt", "--steps 0", "must be at least 1"),
        ("train_gpt", "--width 16 --heads 3", "--width 16 must be a multiple of --heads 3"),
        ("train_gpt", "--text nowhere", "--text nowhere is not a folder"),
        ("train_gpt", "--device tpu", "device: unknown type 'tpu'"),
        ("train_gpt", "--parallel ddp --devices cpu:0 gpu:99", "GPU"),
        ("train_gpt", "--parallel pipeline --schedule 2f2b", "invalid choice: '2f2b'"),
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
        example("train_gpt").main(["--text", str(tmp_path)])
