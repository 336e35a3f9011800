"""Flight records: what the ranks did last, while they run or after a fault.

`python -m plait.distributed.flight_records FOLDER` prints what the processes of a job have written in a folder.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from plait import _core
from plait._engine.rank import here, place, running
from plait._engine.runtime import check
from plait.distributed import _processes
from plait.distributed._groups import nanoseconds, resolve_group

__all__ = ["FlightRecord", "flight_recorder", "load", "warn_of_stragglers"]


class _Records(_core.ObjectOwner):
    """The records that one handle stands for."""

    def __init__(self, handle: int) -> None:
        self._h = handle


class FlightRecord:
    """The last operations of the ranks of a world, in all their groups. `print` shows it as a table.

    A rank's operation is waiting until all ranks of the group have called it, then running, done or failed.
    """

    def __init__(self, records: _Records, index: int = 0) -> None:
        self._records, self._index = records, index

    def _text(self, form: int) -> str:
        return _core.bind_FlightRecordText(self._records._h, self._index, form)

    def table(self) -> str:
        """Returns the record as a table.

        Collectives that are not done or have failed, or in which ranks disagree, come first, marked with "!". Ranks
        that made the same call share a line. The second table says how long each rank waited for others, on average,
        and how late it was behind the median of the ranks, in those collectives that the record has.
        """
        return self._text(1)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        d = self.to_dict()
        return f"<FlightRecord: {len(d['operations'])} operations of {len(d['ranks'])} ranks>"

    def to_dict(self) -> dict[str, Any]:
        """Returns the record as dicts and lists.

        `operations` has a dict for each call: rank, group, seq, name, detail, tensors (dtype and shape), purpose,
        bytes, state, error, and the times called_ns, started_ns and ended_ns, in nanoseconds since 1970, 0 if not
        known. `ranks` has wait_ns and late_ns of each rank, averages, and how often it was the last of how many
        collectives. `processes` says which processes have not answered, and why, and has their faults.
        """
        record: dict[str, Any] = json.loads(self._text(0))
        return record

    @property
    def operations(self) -> list[dict[str, Any]]:
        """The operations of `to_dict`, in the order of the calls."""
        operations: list[dict[str, Any]] = self.to_dict()["operations"]
        return operations

    @property
    def missing(self) -> dict[int, str]:
        """The processes that are not in the record, and why."""
        return {p["process"]: p["missing"] for p in self.to_dict()["processes"] if p.get("missing")}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the record as JSON, for `load`."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text(0))

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for ui.perfetto.dev and chrome://tracing: ranks as processes, groups as threads."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text(2))


def flight_recorder(timeout: timedelta | float | None = None) -> FlightRecord:
    """Returns the last operations of all ranks, in all groups.

    Any thread of any rank may call it at any time, alone, also while ranks are stuck in a collective. A thread that is
    no rank's gets the record of the ranks that run in this process. Processes that do not answer in time are named in
    the record; of their ranks it has the calls that others have heard of.

    Args:
        timeout: how long to wait for other processes, a timedelta or seconds; 5 seconds by default

    Raises:
        ValueError: if there are no ranks.
    """
    limit = nanoseconds(timeout)
    if place.rank is None and _processes._world is not None:
        return FlightRecord(_Records(check(_core.bind_FlightRecordTake(_processes._world._handle, limit))))
    own = [r for r in (here(),) if r.world is not None]
    for rank in [*own, *running]:
        if rank.handle:
            return FlightRecord(_Records(check(_core.bind_FlightRecordTake(rank.handle, limit))))
    raise ValueError("flight_recorder: there are no ranks; call init_process_group first")


def load(path: str | os.PathLike[str]) -> list[FlightRecord]:
    """Reads the records of a folder in which processes have written them, or of a file of `FlightRecord.save`.

    Returns:
        A record for each world whose processes have written there, the latest last.

    Raises:
        OSError: if nothing there can be read.
    """
    records = _Records(check(_core.bind_FlightRecordRead(os.fspath(path))))
    return [FlightRecord(records, i) for i in range(check(_core.bind_FlightRecordCount(records._h)))]


def warn_of_stragglers(
    enabled: bool = True, *, share: float = 0.5, lost: float = 0.1, collectives: int = 100, period: float = 10.0
) -> None:
    """Sets when a `StragglerWarning` says that a rank holds up the others, for all groups of this rank's world.

    That is so if, over a window, it is the last to arrive at more than `share` of the collectives, and the time that it
    is behind the median of the ranks is more than `lost` of the window's time. All ranks should make the same call. The
    warning comes on one rank, once until the rank has kept up for a window. It is on by default, as the arguments say.

    Args:
        enabled: whether to warn
        share: from 0 to 1
        lost: from 0 to 1
        collectives: of a window, at least
        period: seconds of a window, at least
    """
    g = resolve_group(None, "warn_of_stragglers")
    check(_core.bind_GroupWarnOfStragglers(g._h, enabled, share, lost, collectives, nanoseconds(period)))
