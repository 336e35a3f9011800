"""What the environment says of how this process was started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Started:
    """How a process was started, and its place among the processes that were started with it."""

    launcher: str  # "openmpi", "mpich", "slurm", "hand" for RANK and WORLD_SIZE without a launcher, or ""
    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes of this host
    local_size: int = 1
    variable: str = ""  # that says so

    @property
    def node(self) -> int:
        """The number of this host, if all hosts have as many processes."""
        return self.rank // max(self.local_size, 1)


# For each launcher, the variables of rank, size, local rank and local size.
_VARIABLES = {
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    "hand": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
}


def started(environment: Mapping[str, str] = os.environ) -> Started:
    """Returns how this process was started. What is no number counts as not set."""

    def number(name: str, default: int) -> int:
        text = environment.get(name, "").partition("(")[0].partition(",")[0]  # Slurm writes "4(x2)"
        return int(text) if text.isascii() and text.isdigit() else default

    for launcher, (rank, size, local_rank, local_size) in _VARIABLES.items():
        n = number(size, 0)
        if n > 0 and (rank in environment or launcher == "hand"):
            own = number(rank, 0)
            return Started(launcher, own, n, number(local_rank, own), number(local_size, n), size)
    return Started("")
