"""The compiled module, the wheel and the source distribution."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import plait
import pytest
from plait import _core

ROOT = Path(__file__).resolve().parent.parent
TRAIN = """
import plait
from plait import nn, optim

plait.manual_seed(1)
x, y = plait.randn(64, 4), plait.randn(64, 1)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = optim.SGD(model.parameters(), lr=0.05)
losses = []
for _ in range(20):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
print(plait.__version__, plait.__file__)
"""
elf = pytest.mark.skipif(sys.platform != "linux" or not shutil.which("readelf"), reason="needs ELF and readelf")


def readelf(*options: str) -> str:
    return subprocess.run(
        ["readelf", "-W", *options, _core.__file__], check=True, capture_output=True, text=True
    ).stdout


@elf
def test_needs_libc_alone() -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d")))
    assert needed <= {
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
    assert not re.search(r"RPATH|RUNPATH|TEXTREL", readelf("-d"))


@elf
def test_exports_c_functions_and_init_alone() -> None:
    exported = {
        line.split()[7].partition("@")[0]
        for line in readelf("--dyn-syms").splitlines()
        if len(line.split()) > 7 and line.split()[4] in ("GLOBAL", "WEAK") and line.split()[6] != "UND"
    }
    header = (ROOT / "capi/plait.h").read_text()
    assert exported == {"PyInit__core", *re.findall(r"^[a-z]\w* \**(plait_\w+)\(", header, re.M)}


@elf
def test_is_stripped() -> None:
    assert ".symtab" not in readelf("-S")
    assert str(ROOT).encode() not in Path(_core.__file__).read_bytes()


def test_version_is_the_same_everywhere() -> None:
    assert _core.bind_Version() == plait.__version__
    assert f'__version__ = "{plait.__version__}"' in (ROOT / "python/plait/_version.py").read_text()


def test_stubs_name_what_the_module_has() -> None:
    stubs = set(re.findall(r"^def (\w+)\(", (ROOT / "python/plait/_core.pyi").read_text(), re.M))
    assert {name for name in dir(_core) if name.startswith("bind_")} <= stubs <= set(dir(_core))


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    full = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | env
    done = subprocess.run([str(c) for c in command], check=False, cwd=cwd, env=full, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    """An empty environment's Python."""
    venv.create(tmp_path / "venv", with_pip=True)
    yield tmp_path / "venv/bin/python"


@pytest.mark.slow
def test_source_distribution_builds_a_wheel_that_trains(tmp_path: Path, python: Path) -> None:
    """The tarball alone, in an isolated environment, makes the wheel; the wheel alone trains."""
    script = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    run(sys.executable, "-c", script, cwd=ROOT)
    (archive,) = tmp_path.glob("plait-*.tar.gz")
    assert archive.stat().st_size < 10 << 20
    with tarfile.open(archive) as f:
        names = [n.partition("/")[2] for n in f.getnames()]
    assert not [
        n for n in names if n.endswith((".so", "_test.go", ".pyc")) or n.startswith((".venv", "build", "tests"))
    ]

    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, archive, cwd=tmp_path)
    (wheel,) = tmp_path.glob("plait-*.whl")
    check_wheel(wheel)
    run(*pip, "install", wheel, cwd=tmp_path)
    version, _, file = run(python, "-c", TRAIN, cwd=tmp_path).strip().partition(" ")
    assert version == plait.__version__
    assert Path(file).is_relative_to(tmp_path)


def check_wheel(wheel: Path) -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert wheel.name.startswith(f"plait-{plait.__version__}-{tag}-{tag}-")
    if sys.platform == "linux":
        libc = re.search(r"-manylinux_2_(\d+)_\w+\.whl$", wheel.name)
        assert libc and (
            platform.machine() != "x86_64" or int(libc[1]) <= 34
        )  # also where it was built with a newer one
    assert wheel.stat().st_size < 30 << 20
    with zipfile.ZipFile(wheel) as f:
        names = set(f.namelist())
    ours = {
        p.relative_to(ROOT / "python").as_posix() for p in (ROOT / "python/plait").rglob("*.py*") if p.suffix != ".pyc"
    }
    assert ours <= names
    assert "plait/py.typed" in names
    assert len([n for n in names if n.endswith(".so")]) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="where scipy-openblas32 puts its library")
@pytest.mark.parametrize(("setting", "wanted"), [("openblas", "libscipy_openblas"), ("none", "built-in")])
def test_matrix_products(setting: str, wanted: str, tmp_path: Path) -> None:
    """OpenBLAS comes from the package that Plait depends on, wherever it is installed."""
    program = """
import plait
from plait import _core
print((plait.ones(2, 3) @ plait.ones(3, 2)).tolist(), _core.bind_BlasName())
"""
    out = run(sys.executable, "-c", program, cwd=tmp_path, PLAIT_BLAS=setting)
    assert out.startswith("[[3.0, 3.0], [3.0, 3.0]]")
    assert wanted in out


def test_no_finaliser_is_written_in_python():
    """What Ctrl-C raises in one is lost: `capi/extension` gives handles back."""
    assert not [p for p in (ROOT / "python").rglob("*.py") if "def __del__" in p.read_text("utf-8")]
