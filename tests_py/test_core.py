"""The compiled module: flat functions of the project alone, which refuse wrong arguments."""

import re
import subprocess
import sys
from pathlib import Path

from plait import _core

CLASSES = {
    "Held",
    "ObjectOwner",
    "Scope",
    "TensorOwner",
    "array_struct",
    "call_into",
    "detached",
    "device",
    "dropped",
    "dtype",
    "expand",
    "fast_call",
    "fast_named_call",
    "from_numbers",
    "hold",
    "index",
    "lend",
    "own",
    "peek",
    "peek_all",
    "permute",
    "reshape",
    "set_index",
    "set_distributed_class",
    "set_facts",
    "set_sparse_class",
    "set_operators",
    "set_settler",
    "set_store",
    "set_tensor_class",
    "sizes",
    "strides",
    "view",
    "wrap_array",
}


def test_only_functions_of_the_project_are_there():
    names = {n for n in dir(_core) if not n.startswith("__")}
    assert {n for n in names if not n.startswith("bind_")} == CLASSES


# Calls every function with arguments that are wrong, or valid by chance, and prints each call beforehand.
SCRIPT = r"""
import itertools, os, random, sys
import plait
from plait import _core


skip = set(sys.argv[1].split(","))
values = [None, 0, 1, -1, 2, 7, 1.5, "x", b"x", [], (1,), {}, object(), True, 2**31, -2**31, 2**40, 2**62, 2**63 - 1,
          -2**63, 2**63, 2**64, -2**70, float("nan"), float("inf"), 1j, "", "\0", "x" * 1000, "\ud800", plait.ones(1)]
random.seed(int(sys.argv[2]))
out = os.fdopen(os.dup(1), "w", buffering=1)
for name in sorted(dir(_core)):
    if name in skip or name.startswith("__"):
        continue
    function = getattr(_core, name)
    calls = [()] + [(v,) for v in values] + [tuple(random.choices(values, k=k)) for k in range(2, 13) for _ in range(3)]
    integers = [v for v in values if type(v) is int and abs(v) < 2**63] + [0, 1, -1]
    calls += [tuple(random.choices(integers, k=k)) for k in range(1, 13) for _ in range(3)]
    for call in calls:
        print(name, repr(call)[:200].encode("ascii", "backslashreplace").decode(), file=out)
        try:
            function(*call)
        except Exception:
            pass
    try:
        function(no_such_argument=1)
    except Exception:
        pass
print("all done", file=out)
"""

ADDRESS = re.compile(r"\b(Ints|Floats|Tensors|Bytes)(Out)?\b")


def taking_addresses():
    """Returns the functions that are given the address of memory: whether it is there cannot be checked."""
    folder = Path(__file__).parent.parent / "capi/bind"
    source = "\n".join(p.read_text("utf-8") for p in folder.glob("*.go") if not p.name.endswith("_test.go"))
    found = re.findall(r"^func ([A-Z]\w*)\((.*?)\)", source, re.M)
    assert len(found) > 500
    return {f"bind_{name}" for name, arguments in found if ADDRESS.search(arguments)}


def test_wrong_arguments_raise_and_never_crash():
    apart = ",".join(sorted(taking_addresses()))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, apart, "0"], capture_output=True, text=True, timeout=300, check=False
    )
    last = done.stdout.strip().rpartition("\n")[2]
    assert (done.returncode, last) == (0, "all done"), f"{last}\n{done.stderr[-3000:]}"
