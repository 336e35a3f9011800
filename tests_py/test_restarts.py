"""A training whose processes are killed, and that is started again each time, ends with the bits of one that is not."""

import random
import re
from pathlib import Path

import pytest
from launched import KINDS, run

KIND = next((k for k, path in KINDS.items() if path), "openmpi")
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "resume.py"
# Kills a rank at one of its calls of functions, or after a time, which may be inside of one in C; at the
# latest at its end.
KILLER = """
import os, random, runpy, signal, sys, threading, time
kills, seed, count = int(os.environ["KILLS"]), int(os.environ["SEED"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
def kill():
    os.kill(os.getpid(), signal.SIGKILL)
def profile(*_):
    global left
    left -= 1
    if left <= 0:
        kill()
r = random.Random(100 * seed + count)
victim, calls, seconds, by_calls = r.randrange(2), r.randrange(1, 40_000), r.uniform(0, 1), r.random() < 0.6
if count < kills and int(os.environ["RANK"]) == victim:
    import plait.distributed.checkpoint
    left = calls
    if by_calls:
        sys.setprofile(profile)
    else:
        threading.Thread(target=lambda: (time.sleep(seconds), kill()), daemon=True).start()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
if count < kills and int(os.environ["RANK"]) == victim:
    kill()
"""


def last_loss(out):
    """Returns what rank 0 has printed of the end of the training."""
    return [line for line in out.splitlines() if line.startswith("epoch 4")][-1]


def killed(tmp_path, kills, seed):
    script = tmp_path / "killer.py"
    script.write_text(KILLER)
    flags = ["--max-restarts", str(kills), "--grace", "10"]
    program = [script, EXAMPLE, tmp_path / "killed"]
    code, out, err = run(KIND, 2, program, *flags, limit=300, KILLS=str(kills), SEED=str(seed))
    assert code == 0, err
    assert f"restart {kills} of {kills}" in err
    assert len(re.findall(r"rank \d: it was killed", err)) == kills
    return out


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    code, out, err = run(KIND, 2, [EXAMPLE, tmp_path_factory.mktemp("whole") / "whole"])
    assert code == 0, err
    return last_loss(out)


def test_two_kills(tmp_path, unharmed):
    assert last_loss(killed(tmp_path, 2, 1)) == unharmed


@pytest.mark.slow
@pytest.mark.parametrize("seed", random.Random(7).sample(range(1000), 3))
def test_ten_kills(tmp_path, unharmed, seed):
    assert last_loss(killed(tmp_path, 10, seed)) == unharmed


def test_world_of_another_size_goes_on(tmp_path):
    folder, seen = tmp_path / "checkpoint", []
    for n in (2, 1, 2):
        code, out, err = run(KIND, n, [EXAMPLE, folder])
        assert code == 0, err
        assert last_loss(out)
        seen += [line for line in out.splitlines() if "goes on" in line]
    assert seen == ["goes on in epoch 3 after 12 batches", "goes on in epoch 3 after 7 batches"]
