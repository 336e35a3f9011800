"""Scripts in the shape of those for torchrun run on two processes, with nothing but imports changed."""

from pathlib import Path

from launched import KINDS, run

KIND = next((k for k, path in KINDS.items() if path), "openmpi")
SCRIPTS = Path(__file__).resolve().parent / "torchrun"


def lines(name, *arguments, flags=()):
    """Runs a script and returns the lines that it has printed, in order."""
    code, out, err = run(KIND, 2, [SCRIPTS / name, *arguments], "--standalone", *flags)
    assert code == 0, err
    return sorted(out.splitlines())


def test_gradient_accumulation(tmp_path):
    fell, *weights = lines("accumulation.py", tmp_path / "ckpt.pt")
    assert fell == "fell True"
    assert len(weights) == 2
    assert weights[0] == weights[1]
    assert (tmp_path / "ckpt.pt").exists()


def test_elastic_ddp(tmp_path):
    first, second = lines("elastic_ddp.py", tmp_path / "model.pt")
    assert first == second


def test_sharded(tmp_path):
    losses = [lines("sharded.py", tmp_path / "checkpoint", "--explicit-prefetching") for _ in range(2)]
    assert float(losses[1][0].split()[1]) < float(losses[0][0].split()[1])
    assert lines("sharded.py", tmp_path / "other", "--mixed-precision")


def test_snapshots(tmp_path):
    said = lines("snapshots.py", 4, 1, tmp_path / "snapshot.pt", flags=["--max-restarts=1", "--nnodes=1"])
    assert said.count("Resuming training from snapshot at Epoch 2") == 2
    assert sum("Epoch 3 | Batchsize: 8 | Steps: 4" in line for line in said) == 2
