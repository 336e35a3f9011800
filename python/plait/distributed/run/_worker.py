"""The first code of each process that `plait.distributed.run` starts: it sets the variables and runs the script."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType

from plait.distributed._environment import started
from plait.distributed._processes import abort_worlds
from plait.distributed.run import _child

# Variables of the launcher for its processes: the folder of their reports, if it is on the same machine, and what the
# script is.
REPORTS, SCRIPT = "PLAIT_RUN_REPORTS", "PLAIT_RUN_SCRIPT"


def main() -> None:
    """Runs the script, the arguments of which are those of this program."""
    place = started()
    os.environ |= {
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.local_rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "GROUP_RANK": str(place.node),
        "NODE_RANK": str(place.node),
        "GROUP_WORLD_SIZE": str(max(place.size // max(place.local_size, 1), 1)),
        "ROLE_RANK": str(place.rank),
        "ROLE_WORLD_SIZE": str(place.size),
        "ROLE_NAME": "default",
    }
    report = _Report(place.rank)
    kind, program = os.environ.pop(SCRIPT, "script"), sys.argv[1:]
    if kind == "program":
        sys.exit(_run_program(program, report))
    sys.argv = program
    sys.excepthook = report.exception
    try:
        if kind == "module":
            sys.path[0] = os.getcwd()
            runpy.run_module(program[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(program[0]).resolve().parent)
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code:
            report.write(code, f"it exited with {end.code}")
            abort_worlds(f"it exited with {end.code}")
        else:
            report.done()
        raise
    report.done()


def _run_program(program: list[str], report: _Report) -> int:
    """Runs a program that is not Python's, and returns its exit code."""
    child = subprocess.Popen(_child.command(os.getpid(), program))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: child.send_signal(got))
    code = child.wait()
    if code < 0:
        report.write(128 - code, f"it was killed by {signal.Signals(-code).name}")
        return 128 - code
    if code:
        report.write(code, f"it exited with {code}")
    else:
        report.done()
    return code


class _Report:
    """The file in which a process says why it failed."""

    def __init__(self, rank: int) -> None:
        self.folder = os.environ.pop(REPORTS, "")
        self._path = Path(self.folder) / f"rank-{rank}.json" if self.folder and os.path.isdir(self.folder) else None
        if self._path:
            self._put(".pid", str(os.getpid()))

    def write(self, code: int, message: str) -> None:
        """Writes the exit code and the reason."""
        if self._path:
            said = {"code": code, "message": message, "host": socket.gethostname(), "pid": os.getpid()}
            self._put(".json", json.dumps(said))

    def _put(self, suffix: str, text: str) -> None:
        """Writes a file, which the launcher does not see before it is whole."""
        if self._path:
            part = self._path.with_suffix(".part")
            part.write_text(text)
            part.rename(self._path.with_suffix(suffix))

    def done(self) -> None:
        """Writes that the script has come to its end."""
        if self._path:
            self._path.with_suffix(".done").touch()

    def exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Is the `sys.excepthook` of the script."""
        last = traceback.format_exception_only(kind, error)[-1].strip()
        self.write(1, last)
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
            trace = trace.tb_next
        sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    main()
