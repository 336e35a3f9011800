"""Becomes the program that its arguments name, or holds it, so that the program ends with the process that started it.

It is run by its path, so that it does not load the engine.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def command(parent: int, program: list[str], number: int = signal.SIGTERM) -> list[str]:
    """Returns the command of a process that becomes a program, which gets a signal when its parent ends."""
    return [sys.executable, "-S", "-E", __file__, str(parent), str(int(number)), *program]


def held(program: list[str]) -> list[str]:
    """Returns the command of a process that holds a program: it ends with an exit code even if a signal ended that.

    MPICH's launcher kills all processes of a node once it finds that a signal has ended one, even if it was told to
    let them be. It must not find one.
    """
    return [sys.executable, "-S", "-E", __file__, "held", *program]


def _become(program: list[str], parent: int, number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it has ended already
            sys.exit(1)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"plait.distributed.run: {program[0]}: {error.strerror}")


def _hold(program: list[str]) -> int:
    holder = os.getpid()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the program gets them as well, and decides
    handlers = [signal.signal(s, signal.SIG_IGN) for s in signals]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # MPICH's word that a process has ended would end the program
    pid = os.fork()
    if not pid:
        for s, handler in zip(signals, handlers, strict=True):
            signal.signal(s, handler)
        _become(program, holder, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "held":
        sys.exit(_hold(sys.argv[2:]))
    _become(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
