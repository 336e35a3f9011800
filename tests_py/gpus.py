"""Tests of the GPU from Python: in a process of its own, which sees the software adapter where there is no other."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest


def run(script: str, **env: str) -> str:
    """Runs a script in a new process and returns what it printed; without an adapter the test is skipped."""
    head = """
        import sys
        import plait
        if not plait.cuda.is_available():
            print("no adapter")
            sys.exit()
    """
    code = textwrap.dedent(head) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PLAIT_SOFTWARE_GPU": "1", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "no adapter":
        assert os.environ.get("CI") != "true", "CI has no adapter; apt-get install libvulkan1 mesa-vulkan-drivers"
        pytest.skip("no GPU and no software adapter; apt-get install libvulkan1 mesa-vulkan-drivers")
    return done.stdout
