"""Prints a release's notes: what CHANGELOG.md says of the version, or of what is not released yet."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def section(changelog: str, version: str) -> str:
    """Returns the text below the version's heading; below `Unreleased` where the version has none."""
    parts = re.split(r"^## \[(.+?)\].*\n", changelog, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name in (version, "Unreleased"):
        if name in sections:
            return sections[name].strip() + "\n"
    raise SystemExit(f"notes: CHANGELOG.md has neither a section {version} nor Unreleased")


def main() -> None:
    """Prints the notes of the version that the package has."""
    version = runpy.run_path(str(ROOT / "python/plait/_version.py"))["__version__"]
    print(f"# Plait {version}\n\n{section((ROOT / 'CHANGELOG.md').read_text('utf-8'), version)}", end="")


if __name__ == "__main__":
    main()
