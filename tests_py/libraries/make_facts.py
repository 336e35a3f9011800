"""Writes facts.json, PyTorch's numbers of the cases: run it where PyTorch and the libraries are."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import cases

HERE = Path(__file__).resolve().parent
NUMBERS = ("float32", "float32+1", "float32+2", "float32+3")  # the models of timm take long: it has two of them


def measured(numbers: str, library: str) -> dict[str, dict[str, float]]:
    """Returns the numbers of a library's cases."""
    done = subprocess.run(
        [sys.executable, HERE / "cases.py", numbers, library], check=True, stdout=subprocess.PIPE, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if wrong := [r for r in rows if "error" in r]:
        sys.exit(f"{library}, {numbers}: {wrong}")
    return {r.pop("case"): r for r in rows}


def version_of(library: str) -> str:
    """Returns the version of the distribution that a package is in."""
    return importlib.metadata.version(importlib.metadata.packages_distributions()[library][0])


def distance(found: dict[str, float], wanted: dict[str, float]) -> float:
    """Returns the largest relative error of a case's numbers."""
    return max(abs(found[k] - wanted[k]) / max(abs(wanted[k]), 1e-12) for k in wanted)


def main() -> None:
    """Writes the file, for all libraries or for those that are named; others keep what it has.

    Of a case it has the numbers in float64, and the largest distance to them in float32: of numbers that are alike but
    for a few roundings, since one distance can be small by chance.
    """
    path = HERE / "facts.json"
    facts = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for library in sys.argv[1:] or cases.CASES:
        exact, *others = (measured(n, library) for n in ("float64", *NUMBERS[: 2 if library == "timm" else 4]))
        for case, numbers in exact.items():
            numbers["distance"] = float(f"{max(distance(o[case], numbers) for o in others):.1e}")
        facts[library] = {"version": version_of(library), "cases": exact}
    facts["torch"] = importlib.metadata.version("torch").partition("+")[0]
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
