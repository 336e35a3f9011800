"""The command `python -m plait.torch SCRIPT ARGS`, also with `-m MODULE` or `-c CODE` in place of the script."""

from __future__ import annotations

import sys
from types import ModuleType

from plait._engine import scripts
from plait.torch import install

USAGE = "usage: python -m plait.torch [-m MODULE | -c CODE | SCRIPT] [ARGS]"


def main() -> None:
    """Runs the program."""
    kind, *rest = sys.argv[1:] or [""]
    if not kind or (kind[0] == "-" and (kind not in ("-c", "-m") or not rest)):
        sys.exit(USAGE)
    install()
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = program = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(program))
    else:
        sys.argv = rest if kind == "-m" else [kind, *rest]
        scripts.run(sys.argv[0], module=kind == "-m")


if __name__ == "__main__":
    main()
