"""Writes a .tar.gz file again so that its bytes depend on its files alone: `archive.py FILE`.

Members come in the order of their names and belong to nobody; their times are SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path


def normalise(archive: bytes, epoch: int) -> bytes:
    """Returns the same archive with members in order, without owners, and with one time."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as old,
        gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=9, mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda m: m.name):
            fresh = tarfile.TarInfo(member.name)
            fresh.type, fresh.size, fresh.linkname, fresh.mtime = member.type, member.size, member.linkname, epoch
            fresh.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(fresh, old.extractfile(member) if member.isfile() else None)
    return out.getvalue()


def main() -> None:
    """Rewrites the file that the command line names."""
    path = Path(sys.argv[1])
    path.write_bytes(normalise(path.read_bytes(), int(os.environ["SOURCE_DATE_EPOCH"])))


if __name__ == "__main__":
    main()
