"""Becomes the program that its arguments name, or holds it, so that the program ends with the process that started it.

It is run by its path, so that it does not load the engine.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
POLL = 0.05  # seconds between two looks at a file that is shown
NAMES = {1: "stdout.log", 2: "stderr.log"}  # by number of the stream, which is its bit as well


def command(parent: int, program: list[str], number: int = signal.SIGTERM) -> list[str]:
    """Returns the command of a process that becomes a program, which gets a signal when its parent ends."""
    return [sys.executable, "-S", "-E", __file__, str(parent), str(int(number)), *program]


def held(program: list[str], logs: dict[str, Any] | None = None) -> list[str]:
    """Returns the command of a process that holds a program: it ends with an exit code even if a signal ended that.

    MPICH's launcher kills all processes of a node once it finds that a signal has ended one, even if it was told to
    let them be. It must not find one.

    Args:
        program: the program
        logs: where its output goes, of `_logs.Logs.of`; None to leave it where it is
    """
    return [sys.executable, "-S", "-E", __file__, "held", json.dumps(logs), *program]


def _become(program: list[str], parent: int, number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it has ended already
            sys.exit(1)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"plait.distributed.run: {program[0]}: {error.strerror}")


class _Output:
    """The files that a process's output goes to, and what of them the console shows."""

    def __init__(self, logs: dict[str, Any]) -> None:
        place = _started()
        local = str(place.local_rank)
        self._redirected, self._teed = (logs[k].get(local, logs[k].get("", 0)) for k in ("redirects", "tee"))
        self._shown = logs["shown"] is None or place.local_rank in logs["shown"]
        values = {
            "role_name": os.environ.get("ROLE_NAME", "default"),
            "rank": str(place.rank),
            "local_rank": local,
            "hostname": socket.gethostname(),
        }
        self._prefix = re.sub(r"\$\{(\w+)\}", lambda m: values[m[1]], logs["prefix"]).encode()
        folder = Path(logs["folder"] + (f"_node{place.node}" if logs["nodes"] > 1 else ""))
        self.folder = folder / f"attempt_{logs['attempt']}" / local
        self.folder.mkdir(parents=True, exist_ok=True)
        self._read: dict[int, tuple[int, bytes]] = {}  # by stream: how far its file is shown, and the start of a line

    def send(self) -> None:
        """Sends this process's output to the files, in a forked child."""
        os.environ["TORCHELASTIC_ERROR_FILE"] = str(self.folder / "error.json")
        for stream, name in NAMES.items():
            if (self._redirected | self._teed) & stream or not self._shown:
                file = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                os.dup2(file, stream)
                os.close(file)

    def watch(self, pid: int) -> int:
        """Shows what of the files the console gets until a process ends, and returns its status."""
        shown = [stream for stream in NAMES if self._shown and self._teed & stream]
        self._read = dict.fromkeys(shown, (0, b""))
        while shown:
            ended, status = os.waitpid(pid, os.WNOHANG)
            for stream in shown:
                self._show(stream, ended != 0)
            if ended:
                return status
            time.sleep(POLL)
        return os.waitpid(pid, 0)[1]

    def _show(self, stream: int, last: bool) -> None:
        at, start = self._read[stream]
        try:
            with open(self.folder / NAMES[stream], "rb", buffering=0) as file:
                file.seek(at)
                while part := file.read(1 << 16):
                    at += len(part)
                    *lines, start = (start + part).splitlines(keepends=True) or [b""]
                    if start.endswith(b"\n") or len(start) >= 1 << 16:
                        lines, start = [*lines, start], b""
                    self._print(stream, lines)
        except FileNotFoundError:
            pass
        if last and start:
            self._print(stream, [start + b"\n"])
            start = b""
        self._read[stream] = (at, start)

    def _print(self, stream: int, lines: list[bytes]) -> None:
        text = memoryview(b"".join(self._prefix + line for line in lines))
        try:
            while text:
                text = text[os.write(stream, text) :]
        except OSError:  # nobody reads the console any more; the file has it
            pass


def _started() -> Any:
    """Returns this process's place, of the module that says it, which is loaded alone."""
    path = Path(__file__).resolve().parent.parent / "_environment.py"
    spec = importlib.util.spec_from_file_location("_environment", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module.started()


def _hold(program: list[str], logs: dict[str, Any] | None) -> int:
    holder = os.getpid()
    try:
        output = _Output(logs) if logs else None
    except OSError as error:
        sys.exit(f"plait.distributed.run: --log-dir: {error.filename}: {error.strerror}")
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the program gets them as well, and decides
    handlers = [signal.signal(s, signal.SIG_IGN) for s in signals]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # MPICH's word that a process has ended would end the program
    pid = os.fork()
    if not pid:
        for s, handler in zip(signals, handlers, strict=True):
            signal.signal(s, handler)
        if output:
            output.send()
        _become(program, holder, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(output.watch(pid) if output else os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "held":
        sys.exit(_hold(sys.argv[3:], json.loads(sys.argv[2])))
    _become(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
