"""Random models trained by ranks, devices and stages, against one device; checkpoints; and one rank's mistakes.

The cases are those of `tests_py/test_parallel_random.py`, which tries a seed again: `python test_parallel_random.py
stages 7 8`.
"""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

from tests_fuzz.report import Report


def run(rng: random.Random, report: Report) -> None:
    """Tries random seeds of every check until there is no more time."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests_py"))
    checks = importlib.import_module("test_parallel_random").CHECKS
    while report.more():
        for name, check in checks.items():
            seed = rng.randrange(10**6)
            report.begin(f"{name} {seed}")
            try:
                check(seed)
            except Exception as error:
                report.found("difference", f"{type(error).__name__}: {error}".strip())
            else:
                report.held(name)
