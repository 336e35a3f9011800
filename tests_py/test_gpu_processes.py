"""Ranks that are processes, on GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from launched import run


def test_collectives_of_gpus_in_processes() -> None:
    program = Path(__file__).with_name("gpu_collectives.py")
    _, out, err = run("mpich", 2, [program], PLAIT_SOFTWARE_GPU="2", limit=300)
    if "found no GPU" in err:
        pytest.skip("no GPU and no software adapter")
    assert out.count("right") == 2, err
    assert out.count("survives") == 1, err
