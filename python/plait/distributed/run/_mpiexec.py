"""The command that starts the processes: an mpiexec, and the flags of its kind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from plait.distributed.run import _child
from plait.distributed.run._arguments import Arguments

NAMES = {"openmpi": ("mpiexec.openmpi", "orterun", "mpiexec"), "mpich": ("mpiexec.mpich", "mpiexec.hydra", "mpiexec")}

# Variables that launchers set for their processes.
_LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "ORTE_", "HYDI_", "MPI_LOCAL", "TORCHELASTIC_")
_RANKS = {f"{of}{kind}" for of in ("", "LOCAL_", "GROUP_", "ROLE_") for kind in ("RANK", "WORLD_SIZE")} | {"NODE_RANK"}


class LaunchError(RuntimeError):
    """The processes cannot be started."""


def find(wanted: str) -> tuple[str, str]:
    """Returns the path of an mpiexec and its kind, "openmpi" or "mpich".

    The Python environment's comes first, then the system's, as of the libraries.

    Args:
        wanted: "openmpi", "mpich", the path of an mpiexec or of a library beside one, or empty for the first that is
            found

    Raises:
        LaunchError: if there is none.
    """
    if wanted and wanted not in NAMES:
        path = Path(wanted)
        candidates = [path] if "mpiexec" in path.name else [path.parent.parent / "bin" / "mpiexec"]
        if not candidates[0].exists():
            raise LaunchError(f"there is no {candidates[0]}: --mpi and PLAIT_MPI name openmpi, mpich or an mpiexec")
    else:
        names = NAMES.get(wanted, ("mpiexec", *NAMES["openmpi"], *NAMES["mpich"]))
        own = [Path(sys.prefix) / "bin" / name for name in names]
        candidates = [p for p in own if p.exists()]
        candidates += [Path(p) for name in names if (p := shutil.which(name))]
    for candidate in candidates:
        kind = _kind(str(candidate))
        if kind and wanted in (kind, "", str(wanted if wanted not in NAMES else kind)):
            return str(candidate), kind
    raise LaunchError(
        f"no mpiexec{f' of {wanted}' if wanted in NAMES else ''} was found: pip install mpich, or install Debian's "
        "openmpi-bin or mpich"
    )


def _kind(path: str) -> str:
    """Returns the kind of an mpiexec, or an empty string."""
    try:
        said = subprocess.run(
            [path, "--version"], check=False, capture_output=True, text=True, timeout=20, env=environment("openmpi")
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = said.stdout + said.stderr
    if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text:
        return "openmpi"
    return "mpich" if "HYDRA" in text or "Intel(R) MPI" in text else ""


def environment(kind: str) -> dict[str, str]:
    """Returns the environment of an mpiexec. Open MPI must be told that root may use it.

    In a process of another launch, its variables are left out, or this launch would be taken for a part of that one.
    """
    env = dict(os.environ)
    if "OMPI_COMM_WORLD_RANK" in env or "PMI_RANK" in env:
        env = {k: v for k, v in env.items() if not k.startswith(_LAUNCHERS) and k not in _RANKS}
    if kind == "openmpi" and hasattr(os, "geteuid") and os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return env


def last_signal(kind: str) -> int:
    """Returns the signal upon which an mpiexec ends its processes, even those that ignore SIGTERM.

    MPICH's only passes SIGTERM on, but its helpers kill the processes when it has ended.
    """
    return signal.SIGTERM if kind == "openmpi" else signal.SIGKILL


def command(
    path: str,
    kind: str,
    a: Arguments,
    exported: dict[str, str],
    program: list[str],
    logs: dict[str, Any] | None = None,
) -> list[str]:
    """Returns the command line.

    Processes are bound to no core, since each has threads of its own. The end of one does not make the launcher kill
    the others: they end with an error that says why.

    Args:
        path: of the mpiexec
        kind: its kind
        a: what to start
        exported: variables that processes on all nodes get
        program: the program of each process
        logs: where its output goes, of `_logs.Logs.of`
    """
    total = a.processes * a.nodes
    line = [path]
    if kind == "openmpi":
        line += ["-n", str(total), "--oversubscribe", "--bind-to", "none"]
        if a.processes > (os.cpu_count() or 1):
            line += ["--mca", "mpi_yield_when_idle", "1"]  # else a poll could take as long as another process computes
        line += ["--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0"]
        if a.nodes > 1:
            line += ["--map-by", f"ppr:{a.processes}:node"]
        if a.hosts:
            line += ["--host", ",".join(h if ":" in h else f"{h}:{a.processes}" for h in a.hosts)]
        if a.host_file:
            line += ["--hostfile", a.host_file]
        for name in exported:
            line += ["-x", name]
    else:
        line += ["-disable-auto-cleanup", "-bind-to", "none"]
        if a.hosts:
            line += ["-hosts", ",".join(a.hosts)]
        if a.host_file:
            line += ["-f", a.host_file]
        line += ["-ppn", str(a.processes), "-n", str(total)]
    if logs or kind == "mpich":
        program = _child.held(program, logs)
    return line + program
