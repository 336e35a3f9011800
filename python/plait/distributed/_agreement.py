"""What processes must have in common before they train together: it is compared when they join."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from plait import _core
from plait._engine.rank import Rank
from plait._engine.runtime import check
from plait._errors import DistributedError
from plait._version import __version__
from plait.distributed._groups import ProcessGroup
from plait.distributed._objects import exchange

# Variables on which the bits of results may depend.
VARIABLES = ("PLAIT_BLAS", "PLAIT_TUNE")


def compare(r: Rank, wrong: str) -> None:
    """Compares this process with the others of the world.

    Args:
        r: the rank of this process
        wrong: what is wrong with this one alone, or empty

    Raises:
        ValueError: if something is.
        DistributedError: if something is wrong with another one, or if they differ.
    """
    g = ProcessGroup(check(_core.bind_GroupRenew(r.handle, 0)), range(r.size))
    said = {"host": socket.gethostname(), "wrong": wrong, "facts": _facts()}
    try:
        everybody = [json.loads(b) for b in exchange(g, "init_process_group", json.dumps(said).encode())]
    finally:
        check(_core.bind_GroupClose(g._h))
    if said["wrong"]:
        raise ValueError(f"init_process_group: {said['wrong']}")
    problems = [f"rank {i} on host {e['host']}: {e['wrong']}" for i, e in enumerate(everybody) if e["wrong"]]
    for name in everybody[0]["facts"]:
        if len({e["facts"].get(name) for e in everybody}) > 1:
            problems.append(f"the processes differ in {name}: {_by_value(name, everybody)}")
    if problems:
        raise DistributedError("init_process_group: " + "; ".join(problems))


def _facts() -> dict[str, str]:
    """Returns what all processes must have in common."""
    variables = {name: os.path.basename(os.environ.get(name, "")) or "unset" for name in VARIABLES}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"Plait's version": __version__, "Python's version": python, "the script": _script(), **variables}


def _script() -> str:
    """Returns the name of the program and a digest of its text, since a host may have an old copy of it."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file:
        return "no file"
    try:
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8]
    except OSError:  # such as a module in an archive
        return os.path.basename(file)
    return f"{os.path.basename(file)} with digest {digest}"


def wrong_variables(r: Rank) -> str:
    """Returns what is wrong if RANK or WORLD_SIZE were set by hand, and not as the launcher counts."""
    wanted = {"RANK": r.number, "WORLD_SIZE": r.size}
    wrong = [n for n, v in wanted.items() if os.environ.get(n, str(v)) != str(v)]
    if not wrong:
        return ""
    got = " and ".join(f"{n} is {os.environ[n]!r}" for n in wrong)
    return f"{got}, but the launcher made this process rank {r.number} of {r.size}; leave RANK and WORLD_SIZE to it"


def _by_value(name: str, everybody: list[dict[str, Any]]) -> str:
    """Returns which ranks have which value, of at most four values and four ranks of each."""
    values: dict[str, list[str]] = {}
    for i, e in enumerate(everybody):
        values.setdefault(str(e["facts"].get(name)), []).append(f"rank {i} on host {e['host']}")
    shown = []
    for value, ranks in list(values.items())[:4]:
        more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
        shown.append(f"{value} on {', '.join(ranks[:4])}{more}")
    return "; ".join(shown) + ("; ..." if len(values) > 4 else "")
