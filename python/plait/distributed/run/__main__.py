"""The command `python -m plait.distributed.run`."""

from __future__ import annotations

import sys

from plait.distributed.run import _arguments, _job, _mpiexec


def main(launch: bool = False) -> None:
    """Runs the command, or that of `plait.distributed.launch`, and ends the program."""
    try:
        sys.exit(_job.run(_arguments.read(launch=launch)))
    except _mpiexec.LaunchError as error:
        sys.exit(f"plait.distributed.{'launch' if launch else 'run'}: {error}")


if __name__ == "__main__":
    main()
