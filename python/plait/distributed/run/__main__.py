"""The command `python -m plait.distributed.run`."""

from __future__ import annotations

import sys

from plait.distributed.run import _arguments, _job, _mpiexec


def main() -> None:
    """Runs the command and ends the program."""
    try:
        sys.exit(_job.run(_arguments.read()))
    except _mpiexec.LaunchError as error:
        sys.exit(f"plait.distributed.run: {error}")


if __name__ == "__main__":
    main()
