"""Runs the command, waits for it, ends what is left of it, and says why it failed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from plait.distributed._processes import FAILURE
from plait.distributed.run import _child, _mpiexec, _nodes, _worker
from plait.distributed.run._arguments import Arguments

POLL = 0.1  # seconds between two looks at the processes
END = 10.0  # seconds that the launcher gets to end its processes, before they are killed


def run(a: Arguments) -> int:
    """Starts the processes, as often as restarts allow, and returns the exit code."""
    try:
        with _signals_raise():
            return _run(a)
    except _Ended as end:
        return 128 + end.number


def _run(a: Arguments) -> int:
    path, kind = _mpiexec.find(a.mpi)
    try:
        place = a.logs.place(a.name) if a.logs.wanted and not a.dry_run else a.logs.folder
    except OSError as error:
        raise _mpiexec.LaunchError(f"--log-dir: {error.filename}: {error.strerror}") from None
    if place and not a.dry_run:
        _say(f"output is in {place}")
    for attempt in range(a.restarts + 1):
        folder = Path(tempfile.mkdtemp(prefix="plait-run-"))
        try:
            now = _nodes.present(a, folder)
            exported = _variables(now, attempt, folder)
            if kind == "openmpi" and a.mpi:  # asked for, though the environment may have another library
                exported["PLAIT_MPI"] = os.environ.get("PLAIT_MPI") or kind
            program = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
            program += ["-m", _worker.__name__, *a.program]
            logs = a.logs.of(place, attempt, a.nodes) if a.logs.wanted else None
            line = _mpiexec.command(path, kind, now, exported, program, logs)
            if a.verbose or a.dry_run:
                print(shlex.join(line), file=sys.stderr, flush=True)
            if a.dry_run:
                return 0
            line = _child.command(os.getpid(), line, _mpiexec.last_signal(kind))
            alone = now.processes if now.nodes == 1 else 0
            code, stopped = _supervise(line, _mpiexec.environment(kind) | exported, folder, a.grace, alone)
            failures = _failures(folder, stopped)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not code and not failures:
            return 0
        _explain(failures, code)
        if attempt < a.restarts:
            _say(f"restart {attempt + 1} of {a.restarts}")
    return 1


def _say(text: str) -> None:
    print(f"plait.distributed.run: {text}", file=sys.stderr, flush=True)


def _variables(a: Arguments, attempt: int, folder: Path) -> dict[str, str]:
    """Returns the variables that all processes get. `_worker` adds those of each."""
    threads = max((os.cpu_count() or 1) // a.processes, 1)  # the processes of a node share its processors
    return {
        "PLAIT_NUM_THREADS": os.environ.get("PLAIT_NUM_THREADS") or str(threads),
        "MASTER_ADDR": a.master_address,
        "MASTER_PORT": str(a.master_port or _free_port()),
        "ROLE_NAME": a.role,
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(a.restarts),
        "TORCHELASTIC_RUN_ID": a.name,
        # UCX, below many libraries of MPI, ends a process that copies from the memory of one that has died.
        "UCX_TLS": os.environ.get("UCX_TLS") or "^cma",
        _worker.REPORTS: str(folder),
        FAILURE: str(folder / "failure"),
        _worker.SCRIPT: "program" if not a.python else "module" if a.module else "script",
        **({_worker.LOCAL_RANK: "1"} if a.local_rank else {}),
    }


def _free_port() -> int:
    """Returns a port that nobody has here, apart from those that the system gives to connections, such as MPI's."""
    try:
        first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    ports = [*range(10_000, first), *range(last + 1, 2**16)] or range(10_000, 2**16)
    for port in random.SystemRandom().sample(ports, min(len(ports), 100)):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", port))
            return port
    raise _mpiexec.LaunchError("no free port was found for the script's own use: give one with --master-port")


class _Ended(BaseException):
    """A signal asked the launcher to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Inside, the first signal that ends programs raises an exception, and others are ignored from then on.

    Those that the program was told to ignore, as by nohup, stay ignored.
    """
    ended = False

    def end(number: int, _: FrameType | None) -> None:
        nonlocal ended
        if not ended:
            ended = True
            raise _Ended(number)

    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)}
    for s, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(s, end)
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _supervise(
    line: list[str], environment: dict[str, str], folder: Path, grace: float, alone: int
) -> tuple[int, set[int]]:
    """Runs the launcher until its processes have ended. After the first failure the others have `grace` seconds.

    Args:
        line: the launcher's command
        environment: of the launcher
        folder: of the processes' reports
        grace: seconds
        alone: the number of processes, if all are on this machine, otherwise 0. When they have ended, the launcher has
            `grace` seconds too, since it waits for whatever else has their output, such as a child in the background

    Returns:
        The launcher's exit code, and the ranks that had not ended by then.
    """
    process = subprocess.Popen(line, env=environment, process_group=0)
    failed_at = ended_at = 0.0
    stopped: set[int] = set()
    try:
        while (code := process.poll()) is None:
            if not failed_at and (failures := _failures(folder, set(), everybody=False)):
                failed_at = time.monotonic()
                _tell(folder, failures[0])
            if failed_at and time.monotonic() > failed_at + grace:
                _say(f"a rank failed {grace:g} s ago, ending the others")
                stopped = _running(folder)
                break
            if alone and not ended_at and _ended(folder, alone):
                ended_at = time.monotonic()
            if ended_at and time.monotonic() > ended_at + grace:
                _say(f"all ranks ended {grace:g} s ago, and children of theirs go on: their output is not waited for")
                code = 0
                break
            time.sleep(POLL)
        if code is not None:
            stopped = _wait(folder, grace)
    except _Ended as end:
        _interrupt(process, signal.SIGINT if end.number == signal.SIGINT else signal.SIGTERM)
        raise
    finally:
        _interrupt(process, signal.SIGTERM)
        _kill_workers(folder)
    return code if code is not None else 1, stopped


def _tell(folder: Path, failure: dict[str, Any]) -> None:
    """Tells processes that wait for others to join them which rank has failed."""
    part = folder / "failure.part"
    part.write_text(f"rank {failure['rank']} has failed: {failure['message']}")
    part.rename(folder / "failure")


def _interrupt(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends the launcher a signal, and kills it if it does not end."""
    if process.poll() is not None:
        return
    process.send_signal(number)
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _rank(file: Path) -> int:
    """Returns the rank that has written a file."""
    return int(file.stem.removeprefix("rank-"))


def _runs(file: Path, folder: Path) -> bool:
    """Whether the process that has written its number into a file still runs."""
    with contextlib.suppress(OSError, ValueError):
        # The number may be another process's by now. Ours has the folder in its environment.
        return str(folder).encode() in Path(f"/proc/{int(file.read_text())}/environ").read_bytes()
    return False


def _running(folder: Path) -> set[int]:
    """Returns the ranks on this machine that still run."""
    return {_rank(f) for f in folder.glob("rank-*.pid") if _runs(f, folder)}


def _gone(file: Path) -> bool:
    """Whether the process that has written its number into a file has ended for certain."""
    try:
        number = int(file.read_text())
    except (OSError, ValueError):
        return False
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True
    except (OSError, IndexError):
        return False


def _ended(folder: Path, processes: int) -> bool:
    """Whether all processes have been there and are gone."""
    return len([*folder.glob("rank-*.pid")]) == processes and not _running(folder)


def _wait(folder: Path, seconds: float) -> set[int]:
    """Waits for processes that outlive their launcher, as MPICH's may when one of them dies.

    Returns:
        The ranks that still run.
    """
    deadline = time.monotonic() + seconds
    while (running := _running(folder)) and time.monotonic() < deadline:
        time.sleep(POLL)
    return running


def _kill_workers(folder: Path) -> None:
    """Kills those of the processes on this machine that the launcher has left behind."""
    for file in folder.glob("rank-*.pid"):
        if _runs(file, folder):
            with contextlib.suppress(OSError):
                os.kill(int(file.read_text()), signal.SIGKILL)


def _failures(folder: Path, stopped: set[int], everybody: bool = True) -> list[dict[str, Any]]:
    """Returns why ranks of this machine failed: those that could not say so, the others by time, then those stopped.

    The launcher's exit code does not tell: Open MPI's is 0 if processes may survive others.

    Args:
        folder: of the reports
        stopped: ranks that had to be stopped
        everybody: whether all processes have ended; otherwise those that run are left out
    """
    said, silent, ended = [], [], []
    for file in sorted(folder.glob("rank-*.pid"), key=_rank):
        rank, report = _rank(file), file.with_suffix(".json")
        gone = everybody or _gone(file)  # first: what it has written is then all that it will write
        if rank in stopped:
            ended.append({"rank": rank, "message": "it still ran when another rank or the launcher had ended"})
        elif report.exists():
            said.append((report.stat().st_mtime_ns, {"rank": rank, **json.loads(report.read_text())}))
        elif gone and not file.with_suffix(".done").exists():
            silent.append({"rank": rank, "message": "it was killed, or ended without a word"})
    return [*silent, *(failure for _, failure in sorted(said, key=lambda pair: pair[0])), *ended]


def _explain(failures: list[dict[str, Any]], code: int) -> None:
    """Prints which ranks failed, the first one first."""
    of = f" (exit code {code} of the launcher)" if code else ""
    print(f"plait.distributed.run: processes failed{of}", file=sys.stderr)
    for i, f in enumerate(failures[:8]):
        host = f" on {f['host']}, pid {f['pid']}" if "host" in f else ""
        exit_code = f", exit code {f['code']}" if "code" in f else ""
        print(f"  {'first: ' if i == 0 else ''}rank {f['rank']}{host}{exit_code}: {f['message']}", file=sys.stderr)
    if len(failures) > 8:
        print(f"  and {len(failures) - 8} more", file=sys.stderr)
    sys.stderr.flush()
