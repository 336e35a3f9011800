"""A script whose ranks work until one of them fails at a random moment.

Each rank leaves a file behind: the one that fails with the time at which it did, the others with their error.
"""

import json
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

if __name__ == "__main__":
    folder, case, rank = Path(sys.argv[1]), json.loads(sys.argv[2]), int(os.environ["RANK"])


def write(name, **values):
    """Writes a file that is there only when it is whole."""
    part = folder / f"{name}.part"
    part.write_text(json.dumps(values))
    part.rename(folder / name)


def interrupt(number, frame):
    """Fails the main thread where it is."""
    write("failed", at=time.monotonic())
    if case["manner"] == "exit":
        sys.exit(3)
    raise ValueError("boom")


def fail(after):
    """Has this process fail after some seconds."""

    def run():
        time.sleep(after)
        if case["manner"] in ("raise", "exit"):
            os.kill(os.getpid(), signal.SIGUSR2)
            return
        write("failed", at=time.monotonic())
        if case["manner"] == "vanish":
            os._exit(3)
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[case["manner"]])

    signal.signal(signal.SIGUSR2, interrupt)
    threading.Thread(target=run, daemon=True).start()


if __name__ == "__main__":
    (folder / f"pid-{os.getpid()}").touch()
    if rank == case["victim"] and case["phase"] == "start":  # before the engine is there
        fail(case["after"])

import plait as torch
import plait.distributed as dist
from plait import nn
from plait.distributed.fsdp import fully_shard
from plait.distributed.pipelining import PipelineStage, Schedule1F1B
from plait.nn.parallel import DistributedDataParallel


def small():
    """Small collectives."""
    x = torch.ones(5)
    while True:
        dist.all_reduce(x)
        dist.broadcast(x, src=0)
        yield


def big():
    """Collectives of many chunks."""
    x, parts = torch.ones(3_000_000), [torch.zeros(200_001) for _ in range(dist.get_world_size())]
    while True:
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        dist.all_gather(parts, x[:200_001])
        yield


def compute():
    """Products, and now and then a collective."""
    a = torch.ones(300, 300)
    while True:
        for _ in range(50):
            b = a @ a
        b.sum().item()
        dist.all_reduce(torch.ones(1))
        yield


def peers():
    """Messages round a ring, of several sizes."""
    n = dist.get_world_size()
    while True:
        for size in (3, 40_000):
            got = torch.zeros(size)
            work = dist.isend(torch.ones(size), (rank + 1) % n)
            dist.recv(got, (rank - 1) % n)
            work.wait()
        yield


def barriers():
    """Barriers of both kinds."""
    while True:
        dist.barrier()
        dist.monitored_barrier()
        yield


def objects():
    """Collectives of Python's objects."""
    n = dist.get_world_size()
    while True:
        everybody = [None] * n
        dist.all_gather_object(everybody, {"rank": rank, "text": "é" * 20_000})
        some = [list(range(1000))]
        dist.broadcast_object_list(some, src=n - 1)
        yield


def groups():
    """Groups that are made, used and ended."""
    n = dist.get_world_size()
    while True:
        pair = dist.new_group([0, n - 1])
        if rank in (0, n - 1):
            dist.all_reduce(torch.ones(10), group=pair)
            dist.destroy_process_group(pair)
        dist.barrier()
        yield


def model():
    """Returns a small model, the same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 64), nn.ReLU(), nn.Linear(64, 4))


def train(run):
    """Trains."""
    optimizer = torch.optim.AdamW(run.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        (run(torch.randn(16, 64)) ** 2).mean().backward()
        optimizer.step()
        yield


def ddp():
    """Data-parallel steps."""
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.1))


def fsdp():
    """Steps with shards."""
    net = model()
    for layer in (net[0], net[2]):
        fully_shard(layer)
    return train(fully_shard(net))


def checkpoint():
    """Steps and saves."""
    net = model()
    fully_shard(net)
    steps = train(net)
    for i in range(1_000_000):
        next(steps)
        dist.checkpoint.save({"model": net.state_dict()}, checkpoint_id=str(folder / f"step-{i % 2}"))
        yield


def pipeline():
    """Steps of a pipeline with a stage on each rank."""
    n = dist.get_world_size()
    torch.manual_seed(rank)
    stage = PipelineStage(nn.Linear(64, 64), rank, n, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    x = torch.ones(16, 64)
    while True:
        if rank == 0:
            schedule.step(x)
        elif rank == n - 1:
            schedule.step(target=x, losses=[])
        else:
            schedule.step()
        yield


PHASES = {
    f.__name__: f for f in (small, big, compute, peers, barriers, objects, groups, ddp, fsdp, checkpoint, pipeline)
}


def main():
    """Works until a rank fails."""
    try:
        limit = {"timeout": timedelta(seconds=case["join"])} if case["phase"] == "start" else {}
        dist.init_process_group(heartbeat_timeout=timedelta(seconds=case["heartbeat"]), **limit)
        steps = PHASES.get(case["phase"], small)()
        next(steps)
        dist.barrier()
        if rank == case["victim"] and case["phase"] != "start":
            fail(case["after"])
        for _ in steps:
            pass
    except BaseException as error:
        write(f"error-{rank}", at=time.monotonic(), kind=type(error).__name__, message=str(error))
        raise


if __name__ == "__main__":
    main()
