"""The first code of each process that `plait.distributed.run` starts: it sets the variables and runs the script."""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

from plait._engine import scripts
from plait.distributed._environment import started
from plait.distributed._processes import abort_worlds
from plait.distributed.run import _child

# Variables of the launcher for its processes: the folder of their reports, if it is on the same machine, what the
# script is, and whether its first argument is to be the local rank.
REPORTS, SCRIPT, LOCAL_RANK = "PLAIT_RUN_REPORTS", "PLAIT_RUN_SCRIPT", "PLAIT_RUN_LOCAL_RANK"


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
    }
    if place.rank:  # rank 0 has the launcher's input; what MPICH gives others never ends
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    report = _Report(place.rank)
    kind, program = os.environ.pop(SCRIPT, "script"), sys.argv[1:]
    if os.environ.pop(LOCAL_RANK, ""):
        program.insert(1, f"--local-rank={place.local_rank}")
    if kind == "program":
        sys.exit(_run_program(program, report))
    sys.argv = program
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # lines stay whole, and a process that is killed has said them
    try:
        scripts.run(program[0], kind == "module")
    except SystemExit as end:
        if code := _exit_code(end.code):
            report.write(code, f"it exited with {end.code}")
            abort_worlds(f"it exited with {end.code}")
        else:
            report.done()
        raise
    except BaseException as error:
        trace = error.__traceback__
        report.write(1, traceback.format_exception_only(error)[-1].strip())
        while trace is not None and trace.tb_frame.f_code.co_filename in (
            __file__,
            scripts.__file__,
            "<frozen runpy>",
            runpy.__file__,
        ):
            trace = trace.tb_next
        if isinstance(error, KeyboardInterrupt):
            raise error.with_traceback(trace) from None  # Python then ends as a program that Ctrl-C has ended
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
    report.done()


def _exit_code(code: object) -> int:
    """Returns the exit code of a process that calls sys.exit: only the last 8 bits of a number arrive."""
    if code is None:
        return 0
    if not isinstance(code, int):
        return 1
    return (code if -(2**63) <= code < 2**63 else -1) & 0xFF


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
        self._process = os.getpid()
        if self._path:
            self._write(".pid", str(os.getpid()))
            os.environ.setdefault("TORCHELASTIC_ERROR_FILE", str(self._path.with_suffix(".error")))

    def write(self, code: int, message: str) -> None:
        """Writes the exit code and the reason, unless a forked child of the process comes here."""
        if self._path and os.getpid() == self._process:
            said = {"code": code, "message": message, "host": socket.gethostname(), "pid": os.getpid()}
            self._write(".json", json.dumps(said))

    def _write(self, suffix: str, text: str) -> None:
        """Writes a file at once: the launcher reads none that is half written."""
        assert self._path
        part = self._path.with_suffix(".part")
        part.write_text(text)
        part.rename(self._path.with_suffix(suffix))

    def done(self) -> None:
        """Writes that the script has come to its end."""
        if self._path and os.getpid() == self._process:
            self._path.with_suffix(".done").touch()


if __name__ == "__main__":
    main()
