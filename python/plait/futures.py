"""Values that will be there later: `Future`, and functions that wait for several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from plait._engine.warnings import warn

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value, or an error, that some thread sets once.

    Args:
        devices: has no effect: streams order what is done with tensors
    """

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        self._changed = threading.Condition()
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def done(self) -> bool:
        """Returns whether there is a value or an error."""
        return self._done

    def wait(self) -> T:
        """Waits for the value and returns it, or raises the error."""
        with self._changed:
            while not self._done:
                self._changed.wait(0.1)  # in slices, so that Ctrl-C gets through
        return self.value()

    def value(self) -> T:
        """Returns the value, or raises the error.

        Raises:
            RuntimeError: if there is neither yet
        """
        if not self._done:
            raise RuntimeError("Future: the value is not there yet; wait returns it when it is")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def set_result(self, result: T) -> None:
        """Sets the value, and calls the callbacks in this thread.

        Raises:
            RuntimeError: if there is a value or an error already
        """
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Sets the error, which `wait` and `value` raise, and calls the callbacks in this thread."""
        if not isinstance(result, Exception):
            raise TypeError(f"set_exception: want an exception, got {type(result).__name__}")
        self._set(None, result)

    def _set(self, value: T | None, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RuntimeError("Future: it has a value or an error already")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """Returns a future of what a function of this one returns; it is called once this one is done."""
        after: Future[S] = Future()

        def run(done: Future[T]) -> None:
            try:
                value = callback(done)
            except Exception as error:
                after.set_exception(error)
            else:
                after.set_result(value)

        self._when_done(run)
        return after

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Calls a function with this future once it is done; of an error in it there is a warning."""

        def run(done: Future[T]) -> None:
            try:
                callback(done)
            except Exception as error:
                warn(f"add_done_callback: a callback raised {type(error).__name__}: {error}")

        self._when_done(run)

    def _when_done(self, run: Callable[[Future[T]], Any]) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(run)
                return
        run(self)


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """Returns a future of the list of futures, which is done when all of them are."""
    every: Future[list[Future[Any]]] = Future()
    futures, lock, left = list(futures), threading.Lock(), [len(futures)]

    def one_is_done(_: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            every.set_result(futures)

    for future in futures:
        future._when_done(one_is_done)
    if not futures:
        every.set_result([])
    return every


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """Waits for all futures and returns their values, or raises the first one's error."""
    return [f.wait() for f in collect_all(futures).wait()]
