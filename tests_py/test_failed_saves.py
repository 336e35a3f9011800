"""Saves that fail, are killed or meet one another leave a whole file."""

import os
import signal
import subprocess
import sys

import plait
import pytest
from plait import CheckpointError
from plait import distributed as dist
from plait.distributed import checkpoint as dcp
from plait.safetensors import load_file, save_file

SAVES = {
    "zip": lambda path: plait.save({"layer": {"w": plait.ones(400_000)}}, path),
    "safetensors": lambda path: save_file({"layer.w": plait.ones(400_000)}, path),
    "folder": lambda path: dcp.save({"layer": {"w": plait.ones(400_000)}}, checkpoint_id=path),
}


LOADS = {
    "zip": plait.load,
    "safetensors": load_file,
    "folder": lambda path: dcp.load({"layer": {"w": plait.ones(400_000)}}, checkpoint_id=path),
}


@pytest.mark.parametrize("form", SAVES)
def test_paths_that_are_none(tmp_path, form):
    save, load = SAVES[form], LOADS[form]
    wrong = tmp_path / "wrong"
    (wrong.mkdir if form != "folder" else wrong.touch)()
    for path in (tmp_path / "nowhere" / "a", wrong, tmp_path / "wrong" / "a" if form == "folder" else wrong):
        with pytest.raises(CheckpointError) as info:
            load(path)
        assert isinstance(info.value, OSError) and str(path) in str(info.value)
    for path in (wrong, "/proc/nowhere/a"):
        with pytest.raises(CheckpointError) as info:
            save(path)
        assert isinstance(info.value, OSError) and str(path) in str(info.value)
    if form != "folder":
        with pytest.raises(FileNotFoundError if form == "zip" else OSError):
            save(tmp_path / "nowhere" / "a")
    assert [p.name for p in tmp_path.iterdir()] == ["wrong"]


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit for the size of files")
def test_a_disk_that_is_full(tmp_path):
    script = """
import resource, sys
import plait
from plait import nn
from test_failed_saves import SAVES
folder = sys.argv[1]
for form, save in SAVES.items():
    save(f"{folder}/{form}")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
for form, save in SAVES.items():
    try:
        save(f"{folder}/{form}")
    except plait.CheckpointError as error:
        assert isinstance(error, OSError), error
        print(form, error)
"""
    here = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and [line.split()[0] for line in lines] == list(SAVES), done.stderr
    for form, line in zip(SAVES, lines, strict=True):
        assert f"{tmp_path}/{form}" in line and "layer.w" in line and "too large" in line, line
        LOADS[form](tmp_path / form)  # what was there
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(SAVES)
    assert len(list((tmp_path / "folder").iterdir())) == 2


@pytest.mark.parametrize("killed", [False, True])
def test_every_fault_of_a_save_leaves_a_whole_file(tmp_path, monkeypatch, killed):
    """The n-th change of the file system is refused; all after it too, if the process is taken to have ended there."""
    path = tmp_path / "a.pt"
    plait.save({"w": plait.zeros(3)}, path)
    names = ["replace", "fsync", "unlink", "chmod", "close"]
    kept = {name: getattr(os, name) for name in names}
    n = seen = 0

    def fault(name):
        def call(*args, **kwargs):
            nonlocal seen
            seen += 1
            if seen == n + 1 or (killed and seen > n):
                raise OSError(28, "No space left on device")
            return kept[name](*args, **kwargs)

        return call

    while seen >= n:
        seen = 0
        for name in names:
            monkeypatch.setattr(os, name, fault(name))
        try:
            plait.save({"w": plait.ones(3)}, path)
            done = True
        except CheckpointError:
            done = False
        monkeypatch.undo()
        values = plait.load(path)["w"].tolist()
        assert values in ([0, 0, 0], [1, 1, 1]) and (values[0] == 1 or not done)
        plait.save({"w": plait.zeros(3)}, path)
        assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]
        n += 1
    assert done and n > 3


def test_what_a_killed_writer_leaves_goes_with_the_next_save(tmp_path):
    path = tmp_path / "a.pt"
    plait.save([1], path)
    script = f"""
import os, signal
import plait
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
plait.save([2], {str(path)!r})
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert plait.load(path) == [1] and len(list(tmp_path.iterdir())) == 2
    plait.save([3], path)
    assert plait.load(path) == [3] and len(list(tmp_path.iterdir())) == 1


def test_two_processes_and_one_folder(tmp_path):
    """One saves, and the other is told who does."""
    script = """
import sys
import plait
from plait.distributed import checkpoint as dcp
sys.stdin.readline()
for i in range(5):
    try:
        dcp.save({"w": plait.full((100_000,), float(i))}, checkpoint_id=sys.argv[1])
        print("saved")
    except plait.CheckpointError as error:
        print(error)
"""
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for p in pair:
        p.stdin.write("\n")
        p.stdin.flush()
    outputs = [p.communicate(timeout=60)[0].splitlines() for p in pair]
    for p, lines in zip(pair, outputs, strict=True):
        (other,) = (q for q in pair if q is not p)
        assert len(lines) == 5
        assert all(line == "saved" or f"of process {other.pid} on " in line for line in lines), lines
    assert any("saved" in lines for lines in outputs)
    w = plait.zeros(100_000)
    dcp.load({"w": w}, checkpoint_id=tmp_path)
    assert w.min().item() == w.max().item()


def test_ranks_fail_together(tmp_path):
    (tmp_path / "index.json").mkdir()

    def fn(rank):
        dist.init_process_group()
        with pytest.raises(CheckpointError, match=r"index\.json"):
            dcp.save({"w": plait.ones(3)}, checkpoint_id=tmp_path)

    dist.spawn(fn, nprocs=2, devices=["cpu:0"])
