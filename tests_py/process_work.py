"""What ranks compute, whether they are threads or processes: each result is a digest of bits.

As a script it prints the results of all ranks: one in each process, or as many as its argument says.
"""

import hashlib
import json
import sys

import plait as torch
import plait.distributed as dist
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.fsdp import fully_shard
from plait.nn.parallel import DistributedDataParallel

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32)
SIZES = (0, 1, 7, 1000, 40_001, 700_003)


def digest(*tensors):
    """Returns a digest of the tensors' bits."""
    h = hashlib.sha256()
    for t in tensors:
        h.update(str((tuple(t.shape), t.dtype)).encode())
        h.update(bytes(t.detach().reshape(-1).contiguous().view(torch.uint8).numpy()) if t.numel() else b"")
    return h.hexdigest()[:16]


def values(rank, size, dtype):
    """Returns a rank's numbers."""
    g = torch.Generator().manual_seed(100 + rank)
    if dtype.is_floating_point:
        return torch.randn(size, generator=g).to(dtype)
    return torch.randint(-1000, 1000, (size,), generator=g).to(dtype)


def collectives(rank, n):
    """Every collective, of every dtype, of even and odd sizes."""
    results = {}
    for dtype in DTYPES:
        for size in SIZES:
            x = values(rank, size, dtype)
            reduced = x.clone()
            dist.all_reduce(reduced)
            largest = x.clone()
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
            sent = x.clone()
            dist.broadcast(sent, src=n - 1)
            gathered = [torch.empty_like(x) for _ in range(n)]
            dist.all_gather(gathered, x)
            part = torch.empty_like(x)
            dist.reduce_scatter(part, [x + i for i in range(n)])
            swapped = [torch.empty_like(x) for _ in range(n)]
            dist.all_to_all(swapped, [x + i for i in range(n)])
            root = [torch.empty_like(x) for _ in range(n)] if rank == 0 else None
            dist.gather(x, root, dst=0)
            own = torch.empty_like(x)
            dist.scatter(own, gathered if rank == 1 else None, src=1)
            results[f"{dtype} {size}"] = digest(reduced, largest, sent, *gathered, part, *swapped, *(root or []), own)
    return results


def peers(rank, n):
    """Messages between two ranks, in both directions, of tensors that are no blocks of memory, and from any rank."""
    to, of = (rank + 1) % n, (rank - 1) % n
    got = torch.zeros(50, 3)
    work = dist.isend(torch.full((50, 6), float(rank))[:, ::2], to, tag=3)
    dist.recv(got, of, tag=3)
    work.wait()
    seen = []
    if rank == 0:
        for _ in range(n - 1):
            x = torch.zeros(20_000)
            seen.append((dist.recv(x), float(x.sum())))
    else:
        dist.send(torch.full((20_000,), float(rank)), 0)
    return {"ring": digest(got), "any": sorted(seen)}


def groups(rank, n):
    """Subgroups and meshes."""
    pairs = [dist.new_group([i, (i + 1) % n]) for i in range(n)]
    x = values(rank, 1001, torch.float32)
    for i, pair in enumerate(pairs):
        if rank in (i, (i + 1) % n) and n > 1:
            dist.all_reduce(x, group=pair)
    mesh = init_device_mesh("cpu", (n,))
    dist.all_reduce(x, op=dist.ReduceOp.AVG, group=mesh.get_group())
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank, "text": "é" * 3000 * rank})
    dist.monitored_barrier()
    return {"pairs": digest(x), "objects": [(o["rank"], len(o["text"])) for o in objects]}


def training(rank, n, way):
    """A training of a few steps, with buckets of several sizes."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 300), nn.ReLU(), nn.LayerNorm(300), nn.Linear(300, 40), nn.ReLU(), nn.Linear(40, 4)
    )
    if way == "ddp":
        run = DistributedDataParallel(model, bucket_cap_mb=0.02)
    else:
        for layer in (model[0], model[3]):
            fully_shard(layer)
        run = fully_shard(model)
    optimizer = torch.optim.AdamW(run.parameters(), lr=0.01)
    losses = []
    for i in range(4):
        g = torch.Generator().manual_seed(10 * i + rank)
        optimizer.zero_grad()
        loss = (run(torch.randn(8, 16, generator=g)) ** 2).mean()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total)
    return {way: digest(*losses)}


def everything(rank):
    """Runs all of it, on a rank that has a process group."""
    n = dist.get_world_size()
    results = {"collectives": collectives(rank, n), "peers": peers(rank, n), "groups": groups(rank, n)}
    for way in ("ddp", "fsdp"):
        results |= training(rank, n, way)
    return json.loads(json.dumps(results))


def show(_=0):
    """Prints the results of all ranks, on rank 0."""
    dist.init_process_group()
    mine = everything(dist.get_rank())
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    if dist.get_rank() == 0:
        print(json.dumps(everybody))


if __name__ == "__main__":
    if sys.argv[1:]:
        dist.spawn(show, nprocs=int(sys.argv[1]))
    else:
        show()
    sys.exit(0)
