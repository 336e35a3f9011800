"""Prints the flight records of a folder: `python -m plait.distributed.flight_records FOLDER`."""

from __future__ import annotations

import argparse
import sys

from plait.distributed.flight_records import load


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m plait.distributed.flight_records",
        description="Prints what the ranks of a job did last, from the files that its processes have written.",
    )
    parser.add_argument("path", help="the folder of the files, or one file")
    parser.add_argument("--all", action="store_true", help="all jobs of the folder, not only the last one")
    parser.add_argument("--trace", metavar="FILE", help="write a trace of the last job, for ui.perfetto.dev")
    parser.add_argument("--json", metavar="FILE", help="write the record of the last job, as JSON")
    options = parser.parse_args(arguments)
    try:
        records = load(options.path)
        print("\n\n".join(r.table().rstrip() for r in (records if options.all else records[-1:])))
        if not options.all and len(records) > 1:
            print(f"\n{len(records) - 1} earlier jobs are left out; --all shows them")
        if options.trace:
            records[-1].export_chrome_trace(options.trace)
        if options.json:
            records[-1].save(options.json)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
