"""Where the output of each process goes: to the console, to files, or to both, as --redirects and --tee say."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUT, ERR = 1, 2  # the bits of standard output and standard error
MACROS = ("role_name", "rank", "local_rank", "hostname")


@dataclass
class Logs:
    """What is written where."""

    folder: str = ""  # of all runs; empty for a temporary one
    redirects: dict[str, int] = field(default_factory=dict)  # bits by local rank, "" for all others
    tee: dict[str, int] = field(default_factory=dict)
    shown: list[int] | None = None  # local ranks whose output the console gets; None for all
    prefix: str = "[${role_name}${local_rank}]:"  # of lines on the console that a file has too

    @property
    def wanted(self) -> bool:
        """Whether any file is written."""
        return bool(self.folder or any(self.redirects.values()) or any(self.tee.values()) or self.shown is not None)

    def place(self, name: str) -> str:
        """Makes the folder of a run, and returns it."""
        if self.folder:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix=re.sub(r"[^\w.-]", "-", name) + "_", dir=self.folder or None)

    def of(self, place: str, attempt: int, nodes: int) -> dict[str, Any]:
        """Returns what each process has to know, for a start of the run in a folder."""
        return {
            "folder": place,
            "attempt": attempt,
            "nodes": nodes,
            "redirects": self.redirects,
            "tee": self.tee,
            "shown": self.shown,
            "prefix": self.prefix,
        }


def streams(text: str) -> dict[str, int]:
    """Reads --redirects and --tee: bits for all, such as 3, or for local ranks, such as 0:1,1:2.

    Raises:
        ValueError: if it is neither.
    """
    found: dict[str, int] = {}
    parts = text.split(",")
    for part in parts:
        rank, colon, bits = part.rpartition(":")
        if not re.fullmatch("[0-3]", bits) or (not rank.isdecimal() if colon else len(parts) > 1):
            raise ValueError(
                f"want 0 for none, 1 for stdout, 2 for stderr or 3 for both, or such numbers of local ranks as in "
                f"0:1,1:2, got {text!r}"
            )
        found[str(int(rank)) if colon else ""] = int(bits)
    return found


def ranks(text: str) -> list[int]:
    """Reads --local-ranks-filter.

    Raises:
        ValueError: if it is no list of numbers.
    """
    parts = [p.strip() for p in text.split(",") if p.strip()]
    if not parts or not all(p.isdecimal() for p in parts):
        raise ValueError(f"want local ranks such as 0,1, got {text!r}")
    return [int(p) for p in parts]


def prefix(text: str) -> str:
    """Reads --log-line-prefix-template.

    Raises:
        ValueError: if it has an unknown macro.
    """
    for name in re.findall(r"\$\{(\w*)\}", text):
        if name not in MACROS:
            raise ValueError(f"want the macros {', '.join(MACROS)}, got ${{{name}}}")
    return text
