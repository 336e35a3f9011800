"""`start_processes`: runs a function in several processes, and raises what one of them raises."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any


class ProcessException(Exception):
    """A process of `start_processes` did not end as it should.

    Args:
        msg: what happened
        error_index: the number of the process
        pid: its id
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised in a process; the message has the traceback."""


class ProcessExitedException(ProcessException):
    """A process ended without an error of the function.

    Args:
        msg: what happened
        error_index: the number of the process
        error_pid: its id
        exit_code: its status, negative for a signal
        signal_name: of the signal that ended it, or None
    """

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


class ProcessContext:
    """The running processes of `start_processes`, which `join` waits for.

    Args:
        processes: in order
        errors: for each, the end of a pipe through which the text of its error comes
    """

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self._errors = processes, errors
        self._alive = dict(enumerate(processes))
        self._said: dict[int, str] = {}

    def pids(self) -> list[int]:
        """Returns the ids of the processes."""
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until a process has ended, and returns whether all have.

        If one fails, the others are ended: by SIGTERM, and after the grace period by SIGKILL.

        Args:
            timeout: seconds after which to return; None waits without limit
            grace_period: seconds that the others have to end by themselves, and after SIGTERM; 0 and 30 by default

        Raises:
            ProcessRaisedException: if the function raised in a process.
            ProcessExitedException: if a process ended with another status than 0.
        """
        if not self._alive:
            return True
        end = None if timeout is None else time.monotonic() + timeout
        ended: list[int] = []
        while not ended:  # texts of errors are read meanwhile: a long one would keep its process
            left = None if end is None else max(0.0, end - time.monotonic())
            open_ends = {self._errors[n]: n for n in self._alive if n not in self._said}
            sentinels = {p.sentinel: n for n, p in self._alive.items()}
            ready = connection.wait([*open_ends, *sentinels], left)
            for end_of in ready:
                if end_of in open_ends:
                    self._read(open_ends[end_of])  # type: ignore[index]
            ended = [sentinels[s] for s in ready if s in sentinels]  # type: ignore[index]
            if not ready:
                return False
        failed = None
        for n in ended:
            process = self._alive.pop(n)
            process.join()
            self._read(n)
            if process.exitcode and failed is None:
                failed = n
        if failed is None:
            return not self._alive
        self._end_others(grace_period)
        raise self._error_of(failed)

    def _read(self, n: int) -> None:
        if n not in self._said and self._errors[n].poll():
            try:
                self._said[n] = self._errors[n].recv()
            except EOFError:
                self._said[n] = ""

    def _end_others(self, grace_period: float | None) -> None:
        others = list(self._alive.values())
        self._alive.clear()
        if grace_period:
            _wait(others, grace_period)
        for p in others:
            if p.is_alive():
                p.terminate()
        _wait(others, 30 if grace_period is None else grace_period)
        for p in others:
            if p.is_alive():
                p.kill()
            p.join()

    def _error_of(self, n: int) -> ProcessException:
        process = self.processes[n]
        if text := self._said.get(n):
            return ProcessRaisedException(f"process {n} raised an error:\n\n{text}", n, process.pid)
        code = process.exitcode
        name = signal.Signals(-code).name if code < 0 else None
        how = f"was ended by {name}" if name else f"ended with status {code}"
        return ProcessExitedException(f"process {n} {how}", n, process.pid, code, name)


def _wait(processes: list[Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    for p in processes:
        p.join(max(0.0, end - time.monotonic()))


def run(fn: Callable[..., Any], number: int, args: Sequence[Any], error: Any) -> None:
    """Runs the function in a process of `start_processes`."""
    try:
        fn(number, *args)
    except KeyboardInterrupt:
        pass  # who started the process got it, too
    except Exception:
        error.send(traceback.format_exc())
        sys.exit(1)
