"""One kind of random test in a process of its own: `python -m tests_fuzz.worker KIND SEED SECONDS LOG`."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

from tests_fuzz.report import Report


def main(kind: str, seed: str, seconds: str, log: str) -> None:
    """Runs the kind until its time is over."""
    module = importlib.import_module(f"tests_fuzz.{kind}")  # PyTorch's lists take a while: not of the kind's time
    report = Report(Path(log), float(seconds))
    module.run(random.Random(int(seed)), report)
    report.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
