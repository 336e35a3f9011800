"""The compiled module."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import plait
import pytest
from plait import _core

ROOT = Path(__file__).resolve().parent.parent
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
        "libresolv.so.2",
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


@elf
def test_needs_no_glibc_newer_than_2_28() -> None:
    """Also where it was built with a newer one: `capi/ldflags` sees to it."""
    if platform.machine() != "x86_64":
        pytest.skip("calls of what is new go to what is old on amd64 alone")
    versions = re.findall(r"GLIBC_2\.(\d+)", readelf("-V"))
    assert versions
    assert max(map(int, versions)) <= 28


@elf
def test_uses_pythons_stable_interface_alone() -> None:
    """So one module serves every Python from the oldest on."""
    assert _core.__file__.endswith(".abi3.so")
    setup = (ROOT / "setup.py").read_text("utf-8")
    oldest = re.search(r"^OLDEST = \((\d), (\d+)\)$", setup, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert oldest
    assert project["project"]["requires-python"] == f">={oldest[1]}.{oldest[2]}"
    assert project["tool"]["mypy"]["python_version"] == f"{oldest[1]}.{oldest[2]}"
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest[1]}{oldest[2]}"


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
