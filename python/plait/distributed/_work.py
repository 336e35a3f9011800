"""`Work`, the handle of a running collective, and its `Future`."""

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
from plait.distributed._stragglers import give_warnings

__all__ = ["ReduceOp", "Work"]


class ReduceOp(enum.IntEnum):
    """The operation of a reduction. Elements are reduced in rank order, 16-bit dtypes in float32."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # as PyTorch names the type of its members


class Work(_core.ObjectOwner):
    """The handle of a collective that may still run.

    Later operations on its tensors run after it. `wait()` is only needed to raise its error.
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
        """Returns whether the collective is done and has succeeded."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Returns the error of a failed collective, otherwise None."""
        try:
            if self.is_completed():
                self.wait()
        except RuntimeError as error:
            return error
        return None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Waits until the collective is done. Ctrl-C interrupts the wait.

        Args:
            timeout: a timedelta or seconds; by default the group's timeout limits the wait for the other ranks

        Raises:
            plait.DistributedError: if the ranks disagree, a rank has failed, or the timeout has passed.
        """
        limit = nanoseconds(timeout)
        if not limit:
            while not check(_core.bind_WorkWaitOn(self._h, SLICE)):
                pass
            give_warnings()
            return True
        end = time.monotonic_ns() + limit
        while not check(_core.bind_WorkWaitFor(self._h, min(SLICE, max(end - time.monotonic_ns(), 0)))):
            if time.monotonic_ns() >= end:
                raise DistributedError(f"wait: the collective is not done after {limit / 1e9:g} s")
        return True

    def result(self) -> Any:
        """Waits, and returns the tensors that the collective wrote."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Returns the sender of a finished `irecv`, as a rank in the group."""
        return check(_core.bind_WorkSource(self._h))

    def get_future(self) -> Future:
        """Returns a future of the collective's tensors."""
        return Future(self)


class Future:
    """The future value of a collective: its tensors, or the result of a callback on them."""

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
        """Returns the value without waiting. Later operations on its tensors run after the collective."""
        return self._work._result

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Returns a future of the result of `callback`. The callback runs once, when that future is waited for."""
        return _Then(self, callback)


class _Then(Future):
    """The future of a callback's result."""

    def __init__(self, before: Future, callback: Callable[[Future], Any]) -> None:
        self._work = before._work
        self._before, self._callback = before, callback
        self._value: list[Any] = []

    def _compute(self, wait: bool) -> Any:
        if not self._value:
            value = self._before.wait() if wait else self._before.ordered()
            self._value.append(self._callback(_Finished(self._work, value)))
        return self._value[0]

    def wait(self) -> Any:
        """Waits for the value and returns it."""
        self._before.wait()
        return self._compute(True)

    def ordered(self) -> Any:
        """Returns the value without waiting. Later operations on its tensors run after the collective."""
        return self._compute(False)


class _Finished(Future):
    """A future with a value, which a callback gets as its argument."""

    def __init__(self, work: Work, value: Any) -> None:
        self._work, self._value = work, value

    def done(self) -> bool:
        """Returns True."""
        return True

    def wait(self) -> Any:
        """Returns the value."""
        return self._value

    ordered = wait


def wait_for_ranks(work: Work) -> None:
    """Waits until every rank has made the call and all agree. Ctrl-C interrupts the wait."""
    while not check(_core.bind_WorkArrivedFor(work._h, SLICE)):
        pass
    give_warnings()


def raise_at_rank_end(owner: object, handle: int, wait: Callable[[int], int]) -> None:
    """At the end of the rank, waits for the last collectives of `owner` and raises their error, unless one was raised.

    Otherwise nobody would notice that the last optimiser step was skipped because its gradients had failed.
    """
    rank, reference = here(), weakref.ref(owner)

    def wait_at_end() -> None:
        if reference() is not None and not rank.error_raised:
            check(wait(handle))

    rank.waits.add(wait_at_end)
    weakref.finalize(owner, rank.waits.discard, wait_at_end)
