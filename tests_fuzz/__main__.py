"""Runs every kind of random test for its share of the time: `make fuzz SEED=1 SECONDS=600 KINDS=operations,threads`.

Each kind runs in a process of its own. A process that dies, or that is at one case for too long, has found something;
the kind goes on with another seed. What was found is printed with what it takes to see it again, and the exit status
is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

KINDS = ("operations", "modules", "optimizers", "threads", "memory", "files", "parallel")
STALL = 180.0


def main() -> int:
    """Runs the kinds one after the other, and prints a table."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="of all kinds together")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--notes", action="store_true", help="also print what PyTorch accepts and Plait refuses")
    options = parser.parse_args()
    kinds = [k for k in options.kinds.split(",") if k]
    unknown = set(kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kinds {sorted(unknown)}, want some of {', '.join(KINDS)}")
    found = 0
    for kind in kinds:
        counts, findings, notes = explore(kind, options.seed, options.seconds / len(kinds))
        print(
            f"{kind}: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items(), key=lambda c: -c[1])),
            flush=True,
        )
        for at, what, detail in unique(findings):
            print(f"  {what}: {at}\n    {detail}", flush=True)
        often = Counter(at.split(" ")[0] for at, _, _ in notes)
        for at, _, detail in sorted(unique(notes), key=lambda n: -often[n[0].split(" ")[0]]) if options.notes else ():
            print(f"  refused {often[at.split(' ')[0]]} times: {at.split(' ')[0]}: {detail}", flush=True)
        found += len(findings)
    print(f"{found} found with seed {options.seed}")
    return 1 if found else 0


def explore(kind: str, seed: int, seconds: float) -> tuple[Counter[str], list[Any], list[Any]]:
    """Runs workers of a kind until the time is over; returns counts, findings and notes."""
    counts: Counter[str] = Counter()
    findings: list[Any] = []
    notes: list[Any] = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        with tempfile.TemporaryDirectory() as folder:
            events, status = worker(kind, seed, left, Path(folder))
        case = ""
        for event in events:
            if "case" in event:
                case = event["case"]
            elif "found" in event:
                findings.append((event["at"], event["found"], event["detail"]))
            elif "note" in event:
                notes.append((event["at"], event["note"], event["detail"]))
            else:
                counts.update(event["counts"])
        if status:
            counts["ended processes"] += 1
            findings.append((case, "the process did not go on", status))
        seed += 1
    return counts, findings, notes


def worker(kind: str, seed: int, seconds: float, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Runs one worker; returns its events and how it ended, empty if by itself."""
    log, errors = folder / "log", folder / "stderr"
    log.touch()
    with errors.open("w") as stderr:
        command = [sys.executable, "-m", "tests_fuzz.worker", kind, str(seed), str(seconds), str(log)]
        process = subprocess.Popen(command, stdout=stderr, stderr=stderr)
        size, since, status = 0, time.monotonic(), ""
        while process.poll() is None:
            time.sleep(0.2)
            if log.stat().st_size != size:
                size, since = log.stat().st_size, time.monotonic()
            elif time.monotonic() - since > STALL:
                process.kill()
                status = f"at this case for {STALL:.0f} s"
        process.wait()
    if not status and process.returncode:
        text = errors.read_text(errors="replace").strip().splitlines()
        status = f"exit status {process.returncode} with seed {seed}: " + " | ".join(text[:3] + text[-3:])
    return [json.loads(line) for line in log.read_text().splitlines()], status


def unique(findings: list[Any]) -> list[Any]:
    """The first finding of each operation and kind."""
    seen: dict[Any, Any] = {}
    for at, what, detail in findings:
        seen.setdefault((at.split(" ")[0], what), (at, what, detail))
    return list(seen.values())


if __name__ == "__main__":
    sys.exit(main())
