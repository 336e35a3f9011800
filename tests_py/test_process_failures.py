"""Ranks that are processes, one of which fails at a random moment: what the others say, and that all of them end."""

import json
import random
import re
import socket
from pathlib import Path

import process_failures
import pytest
from test_processes import KINDS, check_no_process_is_left, start

PHASES = ("start", *process_failures.PHASES)
MANNERS = ("kill", "raise", "exit", "vanish", "stop")
HEARTBEAT = 2.0  # seconds that a process may be silent
JOIN = 8.0  # seconds that processes have to join, where one fails meanwhile


def case(seed, **given):
    """Returns what fails, where, how and when: what is not given is random."""
    of = random.Random(seed)
    kind = of.choice([k for k, path in KINDS.items() if path] or list(KINDS))
    drawn = {
        "seed": seed,
        "kind": kind,
        "n": of.choice((2, 3)),
        "phase": of.choice(PHASES),
        "manner": of.choice(MANNERS),
        "victim": of.randrange(3),
        "after": of.uniform(0, 0.4),
        "heartbeat": HEARTBEAT,
        "join": JOIN,
    } | given
    if drawn["kind"] != "openmpi":  # others are slow where processes share a core
        drawn["n"] = 2
    drawn["victim"] %= drawn["n"]
    return drawn


def names(c, message):
    """Whether a message says which rank is gone, where and why."""
    victim = c["victim"]
    process = f"process {victim} on host {re.escape(socket.gethostname())}"
    reasons = {
        "kill": rf"{process} exited or was killed \(connection closed\)",
        "vanish": rf"{process} exited or was killed \(connection closed\)",
        "stop": rf"{process} has not been heard from by process \d for ",
        "raise": "(ValueError|CheckpointError): .*boom",
        "exit": "it exited with 3|SystemExit: 3",
    }
    said = rf"(rank {victim}|\({victim} in the world\)) (is gone|has failed): .*({reasons[c['manner']]})"
    if c["phase"] == "start":  # before it had joined, only the launcher knows, or nobody
        said += rf"|rank {victim} has failed: |did not come to initialise MPI|{process}|processes \[{victim}\] of"
    return re.search(said, message, re.DOTALL)


def check(c, tmp_path):
    """Runs a case, and checks what the other ranks say and when, and that all end."""
    program = [Path(process_failures.__file__), tmp_path, json.dumps(c)]
    process = start(c["kind"], c["n"], program, "--grace", str(HEARTBEAT + JOIN + 2))
    try:
        _, err = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 1, err
    check_no_process_is_left(tmp_path)
    assert f"rank {c['victim']}" in err
    failed = json.loads((tmp_path / "failed").read_text())["at"]
    allowed = 5 + (c["manner"] == "stop") * (JOIN if c["phase"] == "start" else HEARTBEAT)
    for rank in set(range(c["n"])) - {c["victim"]}:
        said = tmp_path / f"error-{rank}"
        assert said.exists(), f"rank {rank} said nothing: {err}"
        error = json.loads(said.read_text())
        assert error["kind"] in ("DistributedError", "CheckpointError"), error
        assert names(c, error["message"]), error
        assert error["at"] - failed < allowed, error


# Run every time; test_random_failure has the others.
FEW = [
    {"seed": 1, "phase": "start", "manner": "kill"},
    {"seed": 2, "phase": "small", "manner": "vanish", "kind": "openmpi", "n": 3},
    {"seed": 3, "phase": "big", "manner": "kill"},
    {"seed": 4, "phase": "ddp", "manner": "raise"},
    {"seed": 5, "phase": "pipeline", "manner": "kill"},
]


@pytest.mark.parametrize("given", FEW, ids=lambda given: f"{given['phase']}-{given['manner']}")
def test_failure(given, tmp_path):
    check(case(**given), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_random_failure(seed, tmp_path):
    check(case(seed), tmp_path)
