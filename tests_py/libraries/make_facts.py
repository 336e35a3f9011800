"""Writes facts.json, PyTorch's numbers of the cases: run it where PyTorch and the libraries are."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import cases

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Writes the file, for all libraries or for those that are named; others keep what it has."""
    path = HERE / "facts.json"
    facts = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for library in sys.argv[1:] or cases.CASES:
        done = subprocess.run(
            [sys.executable, HERE / "cases.py", library], check=True, stdout=subprocess.PIPE, text=True
        )
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        wrong = [r for r in rows if "error" in r]
        if wrong:
            sys.exit(f"{library}: {wrong}")
        numbers = {r.pop("case"): r for r in rows}
        facts[library] = {"version": importlib.metadata.version(library), "cases": numbers}
    facts["torch"] = importlib.metadata.version("torch").partition("+")[0]
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
