"""A training step of each library's models, behind `plait.torch` and with PyTorch.

    python benchmarks/python/libraries.py --torch PYTHON --plait PYTHON [--threads 1] [--only timm/resnet18 vit_pytorch]

Each interpreter has the libraries of tests_py/libraries/requirements.txt; one has PyTorch, the other does not. Both
have a process, and the two take turns of a few steps, so that a busy machine slows both alike. The ratio of their
fastest turns is what counts. The models and their inputs are those of tests_py/libraries/cases.py: small ones, so that
the time of Python and of starting operations counts more than in programs that train for hours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
CASES = HERE.parents[2] / "tests_py" / "libraries"
TURNS, TURN = 6, 0.25  # turns of a case, and the seconds that each takes about


class _Made(BaseException):
    """Ends a case once its model is made, before its numbers are taken."""


def steps(cases: Any, case: Callable[[], Any]) -> Callable[[], None]:
    """Returns a training step of a case; the whole case where it trains no model by itself."""
    import torch

    made: list[Any] = []

    def keep(model: Any, loss_of: Any) -> Any:
        made.extend((model, loss_of))
        raise _Made

    before, cases.facts = cases.facts, keep
    try:
        case()
    except _Made:
        pass
    finally:
        cases.facts = before
    if not made:
        return lambda: case() and None
    model, loss_of = made
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def serve(threads: int) -> None:
    """Answers lines of a library, a case and a number of steps, 0 for what takes a turn, with the seconds of a step."""
    sys.path.insert(0, str(CASES))
    warnings.simplefilter("ignore")
    import cases  # type: ignore[import-not-found]
    import torch

    torch.set_num_threads(threads)
    answers, sys.stdout = sys.stdout, sys.stderr
    current: tuple[str, str] | None = None
    step: Callable[[], None] = lambda: None  # noqa: E731
    for line in sys.stdin:
        library, name, count = json.loads(line)
        reply: dict[str, Any] = {}
        try:
            if not name:
                reply["cases"] = [n for n, _ in cases.CASES[library]()]
            else:
                if current != (library, name):
                    current, step = (library, name), steps(cases, dict(cases.CASES[library]())[name])
                    step()
                start = time.perf_counter()
                if count == 0:
                    step()
                    count = max(1, min(200, math.ceil(TURN / (time.perf_counter() - start))))
                    start = time.perf_counter()
                for _ in range(count):
                    step()
                reply.update(count=count, seconds=(time.perf_counter() - start) / count)
        except Exception as error:  # of a library that is missing, or a case that fails
            reply["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps(reply), file=answers, flush=True)


class Side:
    """A process that measures."""

    def __init__(self, python: str, threads: int, door: bool) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if door:
            environment["PYTHONPATH"] = str(HERE.parents[2] / "python")
        self.process = subprocess.Popen(
            [python, *(["-m", "plait.torch"] if door else []), str(HERE), "--serve", "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip

    def ask(self, library: str, case: str = "", count: int = 0) -> dict[str, Any]:
        """Returns the answer to a request."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([library, case, count]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measured(sides: list[Side], only: list[str]) -> Iterator[tuple[str, list[float] | str]]:
    """Yields the name of each case and the seconds of a step on each side, or why there are none."""
    facts = json.loads((CASES / "facts.json").read_text("utf-8"))
    for library in (k for k, v in facts.items() if isinstance(v, dict)):
        answer = sides[0].ask(library)
        for case in answer.get("cases", []):
            name = f"{library}/{case}"
            if only and not any(o in (library, name) for o in only):
                continue
            counts, best = [0] * len(sides), [math.inf] * len(sides)
            error = ""
            for _ in range(TURNS):
                for i, side in enumerate(sides):
                    got = side.ask(library, case, counts[i])
                    if "error" in got:
                        error = got["error"]
                        break
                    counts[i], best[i] = got["count"], min(best[i], got["seconds"])
                if error:
                    break
            yield name, error or best


def main() -> None:
    """Prints a line for each case, sorted, and the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="a Python with PyTorch and the libraries")
    parser.add_argument("--plait", help="a Python with the libraries and without PyTorch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.threads)
        return
    if not options.torch or not options.plait:
        parser.error("give --torch and --plait")
    sides = [Side(options.plait, options.threads, True), Side(options.torch, options.threads, False)]
    rows: list[tuple[float, str, float, float]] = []
    for name, best in measured(sides, options.only):
        if isinstance(best, str):
            print(f"{name}: {best}", flush=True)
            continue
        rows.append((best[1] / best[0], name, best[0], best[1]))
    for side in sides:
        side.end()
    print(f"{'case':60} {'Plait ms':>9} {'PyTorch ms':>10} {'x':>5}")
    for ratio, name, ours, theirs in sorted(rows):
        print(f"{name:60} {1e3 * ours:9.2f} {1e3 * theirs:10.2f} {ratio:5.2f}")
    if rows:
        mean = math.exp(sum(math.log(r[0]) for r in rows) / len(rows))
        print(f"{len(rows)} cases, geometric mean {mean:.2f}")


if __name__ == "__main__":
    main()
