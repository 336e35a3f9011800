"""`Saving`, the future of an asynchronous save."""

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
    """The future of an asynchronous save. It is done when the checkpoint is complete; `result` raises the save's error.

    A rank whose function returns waits for its saves, and raises their error unless it was reported before. A process
    that ends waits, too, and prints such errors.
    """

    def __init__(self, pending: int, folder: str) -> None:
        super().__init__()
        self._folder, self._waits = folder, here().waits
        self.set_running_or_notify_cancel()
        try:
            self._waits.add(self.result)
            _unreported.add(self)
            threading.Thread(target=self._follow, args=(pending,), name="plait-checkpoint").start()
        except BaseException:  # perhaps Ctrl-C, and no thread: nobody may wait for it
            self._forget()
            raise

    def _follow(self, pending: int) -> None:
        try:
            while (status := _core.bind_CheckpointWaitFor(pending, SLICE)) == 0:
                pass
            _core.bind_ObjectRelease(pending)
            if status < 0:
                raise checkpoint_error("async_save", self._folder, error_from(status))
        except BaseException as error:  # any error must end the waits
            self.set_exception(error)
        else:
            self._forget()
            self.set_result(None)

    def _forget(self) -> None:
        self._waits.discard(self.result)
        _unreported.discard(self)

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


_unreported: set[Saving] = set()  # saves whose result nobody has asked for
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unreported.clear)  # a child has none of their threads


@atexit.register
def _report() -> None:
    """Prints the errors of saves whose result nobody has asked for. Their threads have ended by now."""
    for saving in list(_unreported):
        error = saving.exception()
        if error is not None:
            print(f"async_save to {saving._folder} failed:", file=sys.stderr)
            traceback.print_exception(error)
