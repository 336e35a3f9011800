"""Collectives on their way."""

from __future__ import annotations

import enum
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from plait import _core
from plait._engine.rank import here
from plait._engine.runtime import SLICE, check
from plait._errors import DistributedError
from plait.distributed._groups import nanoseconds

__all__ = ["ReduceOp", "Work"]


class ReduceOp(enum.IntEnum):
    """How the elements of the ranks become one, in the order of the ranks. Half types are reduced in float32."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class Work(_core.ObjectOwner):
    """A collective on its way.

    Later operations on its tensors wait for it by themselves; call `wait()` only to have its error raised.
    """

    def __init__(self, handle: int, result: Any = None, name: str = "") -> None:
        self._h, self._name = handle, name
        self._result = result

    def __repr__(self) -> str:
        return f"<Work {self._name}: {'done' if self.is_completed() else 'on its way'}>"

    def is_completed(self) -> bool:
        """Returns whether the collective is done or has failed."""
        return bool(check(_core.bind_WorkDone(self._h)))

    def is_success(self) -> bool:
        """Returns whether the collective is done without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Returns the error of a collective that has failed."""
        try:
            if self.is_completed():
                self.wait()
        except RuntimeError as error:
            return error
        return None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Waits until the collective is done, in a way that lets Ctrl-C through.

        Args:
            timeout: a timedelta or seconds; by default the group's timeout bounds the wait for the other ranks

        Raises:
            plait.DistributedError: if the ranks disagree, one died, or time is up.
        """
        limit = nanoseconds(timeout)
        if not limit:
            arrive(self)
        end = time.monotonic_ns() + limit
        while not check(
            _core.bind_WorkWaitFor(self._h, SLICE if not limit else min(SLICE, max(end - time.monotonic_ns(), 0)))
        ):
            if limit and time.monotonic_ns() >= end:
                raise DistributedError(f"wait: the collective is not done after {limit / 1e9:g} s")
        return True

    def result(self) -> Any:
        """Waits, and returns the tensors the collective writes to."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Returns the rank, in the group, that sent what a finished `irecv` received."""
        return check(_core.bind_WorkSource(self._h))

    def get_future(self) -> Future:
        """Returns the collective as a future of its tensors."""
        return Future(self)


class Future:
    """What a collective writes, or what was made of it, when it is done."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __repr__(self) -> str:
        return f"<Future of {self._work._name}: {'done' if self.done() else 'on its way'}>"

    def done(self) -> bool:
        """Returns whether the collective is done."""
        return self._work.is_completed()

    def wait(self) -> Any:
        """Waits for the value and returns it."""
        return self._work.result()

    def value(self) -> Any:
        """Returns the value."""
        return self.wait()

    def ordered(self) -> Any:
        """Returns the value without waiting: what is done with its tensors is done after the collective."""
        return self._work._result

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Returns a future of what `callback` makes of this one, which is called, once, when that is waited for."""
        return _Then(self, callback)


class _Then(Future):
    """What a callback makes of a future."""

    def __init__(self, before: Future, callback: Callable[[Future], Any]) -> None:
        self._work = before._work
        self._before, self._callback = before, callback
        self._value: list[Any] = []

    def _made(self, wait: bool) -> Any:
        if not self._value:
            given = self._before.wait() if wait else self._before.ordered()
            self._value.append(self._callback(_Known(self._work, given)))
        return self._value[0]

    def wait(self) -> Any:
        """Waits for the value and returns it."""
        self._before.wait()
        return self._made(True)

    def ordered(self) -> Any:
        """Returns the value without waiting: what is done with its tensors is done after the collective."""
        return self._made(False)


class _Known(Future):
    """A value that is there, as far as whoever uses it need know."""

    def __init__(self, work: Work, value: Any) -> None:
        self._work, self._given = work, value

    def done(self) -> bool:
        """Returns True."""
        return True

    def wait(self) -> Any:
        """Returns the value."""
        return self._given

    ordered = wait


def arrive(work: Work) -> None:
    """Waits until every rank has made the call and all agree, in a way that lets Ctrl-C through."""
    while not check(_core.bind_WorkArrivedFor(work._h, SLICE)):
        pass


def tell_at_end(owner: object, handle: int, wait: Callable[[int], int]) -> None:
    """Has the rank end with the error of its last collectives for an object that is there, if it was told of none.

    A step in place on gradients that did not come leaves the parameters as they were, which nobody would notice.
    """
    rank, alive = here(), weakref.ref(owner)

    def last() -> None:
        if alive() is not None and not rank.told:
            check(wait(handle))

    rank.waits.add(last)
    weakref.finalize(owner, rank.waits.discard, last)
