"""What a worker tells the runner: the case it is at, what it found, and how many cases held."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any


class Report:
    """Writes one line of JSON for each event, so that the runner knows the last case of a worker that died or hangs."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._file = path.open("a", buffering=1)
        self._end = time.monotonic() + seconds
        self._counts: Counter[str] = Counter()
        self._case = ""

    def more(self) -> bool:
        """Reports whether there is time for another case."""
        return time.monotonic() < self._end

    def begin(self, case: str) -> None:
        """Notes the case that runs from now on."""
        self._case = case
        self._write(case=case)

    def held(self, outcome: str = "equal") -> None:
        """Counts the case as one that held."""
        self._counts[outcome] += 1

    def found(self, kind: str, detail: str) -> None:
        """Counts the case as one that did not hold, and says how."""
        self._counts[kind] += 1
        self._write(found=kind, at=self._case, detail=detail[:2000])

    def note(self, kind: str, detail: str) -> None:
        """Counts a difference that is not a defect, and says which."""
        self._counts[kind] += 1
        self._write(note=kind, at=self._case, detail=detail[:300])

    def close(self) -> None:
        """Writes the counts: the last line of a worker that ended by itself."""
        self._write(counts=dict(self._counts))
        self._file.close()

    def _write(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")
