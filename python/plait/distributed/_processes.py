"""Ranks in several processes: this process's part in the worlds that it joins with the others of its launcher."""

from __future__ import annotations

import atexit
import os
import sys
from array import array
from pathlib import Path
from types import TracebackType
from typing import Any

from plait import _core
from plait._engine.rank import main_rank, place
from plait._engine.runtime import SLICE, address, check
from plait._errors import DistributedError, text_of
from plait.distributed._environment import started

# The variable of `plait.distributed.run` for its processes: a file that says which rank has failed, once one has.
FAILURE = "PLAIT_RUN_FAILURE"

_ALL_PROCESSES = 1 << 32  # no communicator's number

_open: list[ProcessWorld] = []  # the worlds of this process, in the order in which it has joined them


class ProcessWorld:
    """This process's part in a world of processes, with one rank or several, which are its threads."""

    def __init__(self, ranks: int, timeout: int, heartbeat: int, communicator: int | None) -> None:
        """Joins. It waits for the other processes.

        Args:
            ranks: the number of this process's ranks
            timeout: how long a rank waits for the others, in nanoseconds; 0 for the default
            heartbeat: how long a process may be silent; the same
            communicator: Fortran's number of the MPI communicator whose processes join; None for all processes

        Raises:
            DistributedError: if MPI is missing or does not fit the launcher, or a process does not join.
        """
        self.communicator, self._process = communicator, os.getpid()
        self.groups = array("q", bytes(8 * ranks))  # handles of the group of all ranks, one for each of this process
        self._handle = 0
        number = _ALL_PROCESSES if communicator is None else communicator
        joining = check(_core.bind_WorldJoin(ranks, timeout, timeout, heartbeat, number, sys.prefix))
        try:
            while not self._handle:
                self._handle = check(_core.bind_WorldJoined(joining, SLICE, address(self.groups)))
                if not self._handle:
                    _check_launcher()
        except BaseException as error:
            for group in self.groups:  # it was interrupted in the very moment in which it joined
                if group:
                    _core.bind_GroupAbort(group, f"it raised {type(error).__name__}: {text_of(error)}")
            raise
        finally:
            _core.bind_ObjectRelease(joining)
        _open.append(self)

    def abort(self, why: str) -> None:
        """Tells the other processes why this one ends. A forked child is none of them."""
        if os.getpid() == self._process and (status := _core.bind_WorldAbort(self._handle, why)) < 0:
            _core.bind_ErrorRelease(status)

    def close(self) -> None:
        """Ends this process's part, and waits for the others to come to their ends, for a limited time."""
        _open.remove(self)
        if (status := _core.bind_WorldClose(self._handle)) < 0:
            _core.bind_ErrorRelease(status)


def abort_worlds(why: str) -> None:
    """Tells the processes of all worlds that this process is in why it ends."""
    for world in _open:
        world.abort(why)


def _check_launcher() -> None:
    """Raises an error if the launcher says that a rank has failed, for which this process would wait in vain."""
    name = os.environ.get(FAILURE, "")
    if name and (file := Path(name)).exists():
        raise DistributedError(f"init_process_group: {file.read_text()}")


class _ProcessRank:
    """The rank that this process's threads share: the one of its first world, which ends with the program."""

    def __init__(self, world: ProcessWorld) -> None:
        self._rank = main_rank()
        self._rank.handle = world.groups[0]
        self._rank.number = check(_core.bind_GroupRank(world.groups[0]))
        self._rank.size = check(_core.bind_GroupSize(world.groups[0]))
        self._before, self._process = sys.excepthook, os.getpid()
        sys.excepthook = self._report
        atexit.register(self._leave)

    def _report(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Tells the other processes that an exception ends this one."""
        try:
            self._before(kind, error, trace)
        finally:
            abort_worlds(f"it raised {kind.__name__}: {text_of(error)}")

    def _leave(self) -> None:
        """Ends the rank, and all worlds."""
        if os.getpid() != self._process:  # a forked child is no rank
            return
        try:
            self._rank.finish()
        finally:
            self._rank.handle = 0
            for world in reversed(_open.copy()):  # the first one has initialised MPI
                world.close()


_world: ProcessWorld | None = None


def join_others(timeout: int, heartbeat: int, communicator: Any, size: int) -> None:
    """Joins other processes: those of a communicator, or those that a launcher started with this one, if it did.

    Args:
        timeout: as for `ProcessWorld`
        heartbeat: the same
        communicator: one of mpi4py, or None
        size: the size that the caller expects of its world; -1 for any. A rank of `spawn` may want that of its process
    """
    how, rank = started(), place.rank
    if rank is not None:
        others = communicator is not None or (how.size > 1 and how.launcher != "hand" and size != rank.size)
        if others and rank.spawned and not rank.across:
            rank.spawned.join_processes(rank, timeout, heartbeat, communicator)
        return
    if communicator is not None or (how.launcher and how.size > 1):
        join_processes(timeout, heartbeat, communicator)


def join_processes(timeout: int, heartbeat: int, communicator: Any = None) -> None:
    """Makes this process a rank of a world of processes. Later calls do nothing. See `ProcessWorld`.

    Raises:
        ValueError: if the process has joined the world of another communicator before.
    """
    global _world
    number = number_of(communicator)
    if _world is None:
        _world = ProcessWorld(1, timeout, heartbeat, number)
        _ProcessRank(_world)
    elif number not in (None, _world.communicator):
        raise ValueError(
            "init_process_group: this process has joined the processes of another communicator; make groups of them "
            "with new_group"
        )


def number_of(communicator: Any) -> int | None:
    """Returns Fortran's number of a communicator: one of mpi4py, or a number already."""
    if communicator is None or (isinstance(communicator, int) and not isinstance(communicator, bool)):
        return communicator
    try:
        return int(communicator.py2f())
    except AttributeError:
        raise TypeError(
            "init_process_group: communicator: want a communicator of mpi4py, or Fortran's number of one, got "
            f"{type(communicator).__name__}"
        ) from None
