"""Libraries written for PyTorch give its numbers behind `plait.torch`, in an environment without it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import plait
import pytest
from libraries.page import PAGE, page

HERE = Path(__file__).resolve().parent / "libraries"
FACTS = json.loads((HERE / "facts.json").read_text("utf-8"))


def test_page_is_what_the_facts_say():
    assert PAGE.read_text("utf-8") == page()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Makes an environment of wheels, with the package of this checkout, and returns its interpreter."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", HERE / "requirements.txt"], check=True)
    packages = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (packages / "plait.pth").write_text(f"{Path(plait.__file__).parent.parent}\n")
    return python


def measured(python, numbers, library, *cases):
    done = subprocess.run(
        [python, "-m", "plait.torch", HERE / "cases.py", numbers, library, *cases],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r for r in rows if "error" in r] == []
    return {r.pop("case"): r for r in rows}


def numbers_of(facts):
    return {k: v for k, v in facts.items() if k != "distance"}


# The libraries that most programs use, and of the large ones a few cases.
MOST_USED = {
    "accelerate": (),
    "einops": (),
    "safetensors": (),
    "timm": ("resnet18", "vit_tiny_patch16_224"),
    "torchvision": ("mobilenet_v3_small", "transforms"),
    "transformers": ("GPT-2", "Trainer"),
}


@pytest.mark.parametrize("library", sorted(MOST_USED))
def test_the_most_used(python, library):
    found = measured(python, "float64", library, *MOST_USED[library])
    for case in MOST_USED[library] or FACTS[library]["cases"]:
        assert found[case] == pytest.approx(numbers_of(FACTS[library]["cases"][case]), rel=1e-5, abs=1e-9), case


@pytest.mark.slow
@pytest.mark.parametrize("library", sorted(FACTS.keys() - {"torch"}))
def test_numbers_are_pytorchs(python, library):
    exact, found = measured(python, "float64", library), measured(python, "float32", library)
    wanted = FACTS[library]["cases"]
    assert found.keys() == exact.keys() == wanted.keys()
    for case, facts in wanted.items():
        numbers = numbers_of(facts)
        # Libraries compute some numbers in float32 even so, and PyTorch has constants of float32.
        assert exact[case] == pytest.approx(numbers, rel=1e-5, abs=1e-9), case
        # Where PyTorch's own float32 is more than thirty roundings off, a relu or a maximum has gone the other way by
        # rounding, and gradients jump. What comes before them does not.
        if facts["distance"] > 2e-6:
            numbers = {k: v for k, v in numbers.items() if k not in ("gradient", "parameters", "after", "merged")}
        assert {k: found[case][k] for k in numbers} == pytest.approx(numbers, rel=1e-4, abs=1e-6), case
