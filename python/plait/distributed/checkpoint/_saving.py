"""Saves that go on while the program does."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from concurrent.futures import Future

from plait import _core
from plait._engine.rank import here
from plait._engine.runtime import SLICE
from plait._errors import checkpoint_error, error_from


class Saving(Future[None]):
    """A save that goes on: done when the checkpoint is whole, and `result` raises what `save` would have.

    The rank waits for it when its function returns, and raises its error unless somebody has been told. The process
    waits too, and prints such an error.
    """

    def __init__(self, pending: int, folder: str) -> None:
        super().__init__()
        self._folder, self._waits = folder, here().waits
        self.set_running_or_notify_cancel()
        self._waits.add(self.result)
        _untold.add(self)
        threading.Thread(target=self._follow, args=(pending,), name="plait-checkpoint").start()

    def _follow(self, pending: int) -> None:
        try:
            while (status := _core.bind_CheckpointWaitFor(pending, SLICE)) == 0:
                pass
            _core.bind_ObjectRelease(pending)
            if status < 0:
                raise checkpoint_error("async_save", self._folder, error_from(status))
        except BaseException as error:  # whatever it is: who waits must not wait for ever
            self.set_exception(error)
        else:
            self._forget()
            self.set_result(None)

    def _forget(self) -> None:
        self._waits.discard(self.result)
        _untold.discard(self)

    def result(self, timeout: float | None = None) -> None:
        """Waits for the end of the save, and raises its error."""
        error = self.exception(timeout)
        if error is not None:
            raise error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the end of the save, and returns its error."""
        error = super().exception(timeout)
        self._forget()
        return error


_untold: set[Saving] = set()  # those whose end nobody has been told of
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_untold.clear)  # their threads are not there


@atexit.register
def _report() -> None:
    """Prints the errors of saves that nobody has asked for. Python has waited for their threads by now."""
    for saving in list(_untold):
        error = saving.exception()
        if error is not None:
            print(f"async_save to {saving._folder} failed:", file=sys.stderr)
            traceback.print_exception(error)
