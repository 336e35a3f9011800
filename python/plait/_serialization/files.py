"""Files that are replaced in one step: what was there stays until what comes is whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from typing import IO

try:
    import fcntl
except ImportError:  # not every system has it
    fcntl = None  # type: ignore[assignment]

_UNFINISHED = re.compile(r"\.[0-9a-f]{8}\.tmp")


@contextlib.contextmanager
def replaced(path: str) -> Iterator[IO[bytes]]:
    """Yields a file beside `path` that is renamed to it at the end: after an error, or a crash, `path` is as it was.

    What was written is on the disk by then. A link is followed, and permissions stay. What other writers of `path` left
    behind when they died is removed.
    """
    target = os.path.realpath(path)
    if not os.path.isdir(folder := os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
    _clean(folder, os.path.basename(target))
    file = _beside(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.path.exists(target):
                if not os.path.isfile(target):
                    raise OSError(f"{target} is not a regular file")
                os.chmod(file.name, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(file.name, target)  # before the file is closed, which ends the lock
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise
    with contextlib.suppress(OSError):  # not every system syncs folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _beside(target: str) -> IO[bytes]:
    """Makes a file that is locked as long as it is open, so that others see that its writer lives."""
    while True:
        name = f"{target}.{secrets.token_hex(4)}.tmp"
        try:
            file = open(name, "xb")  # noqa: SIM115
        except FileExistsError:
            continue
        # Where nobody can tell, nobody cleans up; where somebody has just done so, the file is not there any more.
        if _locked(file) is not False and _names(name, file):
            return file
        file.close()


def _clean(folder: str, base: str) -> None:
    """Removes the files that dead writers have left."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith(base) and _UNFINISHED.fullmatch(name, len(base)) and os.path.isfile(path):
            with contextlib.suppress(OSError), open(path, "r+b") as file:
                if _locked(file) and _names(path, file):
                    os.unlink(path)


def _locked(file: IO[bytes]) -> bool | None:
    """Locks a file, unless another has, and returns whether; None where the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _names(path: str, file: IO[bytes]) -> bool:
    """Whether a path is that of an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except OSError:
        return False
