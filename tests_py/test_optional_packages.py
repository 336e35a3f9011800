"""The tests of what needs packages that are not always installed, in an environment that has them."""

import os
import subprocess
import sys
from pathlib import Path

import plait
import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_what_needs_optional_packages(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    python = tmp_path / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", HERE / "optional/requirements.txt"], check=True)
    where = {**os.environ, "PYTHONPATH": str(Path(plait.__file__).parent.parent)}
    tests = [HERE / "test_tensorboard.py", HERE / "test_onnx.py"]
    done = subprocess.run([python, "-m", "pytest", *tests], check=False, capture_output=True, text=True, env=where)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout
