"""Ranks that wait for each other in different collectives, so that none of them can ever go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from plait import _core
from plait._errors import DistributedError
from plait._rank import Rank, place

SLICES = 8  # of a wait, before a rank asks whether the others wait too


class Job:
    """The ranks that were started together, and in which collectives they wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ranks: list[Rank] = []  # that are not over
        self.expected = 0  # ranks that have yet to begin

    def begin(self, rank: Rank) -> None:
        """Counts a rank in."""
        with self._lock:
            self.ranks.append(rank)
            self.expected -= 1

    def end(self, rank: Rank) -> None:
        """Counts a rank out."""
        with self._lock:
            self.ranks.remove(rank)

    def examine(self) -> None:
        """Tells all ranks that they can never go on, if so.

        A rank whose only thread waits for the arrival of others goes on when one of them makes a call. So if all of
        them wait, and have not arrived after all were seen waiting, none ever will.
        """
        with self._lock:
            ranks = sorted(self.ranks, key=lambda r: r.number)
            waiting = [(r, w) for r in ranks if (w := r.waits_in) is not None and not r.has_company()]
            if self.expected or len(waiting) < len(ranks) or any(_core.bind_WorkArrivedFor(w, 0) for _, w in waiting):
                return
            calls = "; ".join(f"rank {r.number} in {_core.bind_WorkName(w)}" for r, w in waiting)
            for r, _ in waiting:
                r.stuck = f"the ranks wait for each other, and none can go on: {calls}"


@contextmanager
def waiting(work: int) -> Iterator[Any]:
    """Notes that the calling thread waits for others to come to a collective. What it gives is called now and then."""
    rank = place.rank
    job = rank.job if rank is not None else None
    if rank is None or job is None:
        yield lambda: None
        return
    slices = 0

    def look() -> None:
        nonlocal slices
        slices += 1
        if slices % SLICES == 0 and not rank.stuck:
            job.examine()
        if rank.stuck:
            raise DistributedError(rank.stuck)

    rank.waits_in = work
    try:
        yield look
    except DistributedError as error:
        if rank.stuck and str(error) != rank.stuck:  # another rank was told before, and has left
            raise DistributedError(rank.stuck) from None
        raise
    finally:
        rank.waits_in, rank.stuck = None, ""
