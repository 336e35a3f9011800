"""Collectives on the GPUs of two processes, for a test: on NVIDIA's GPUs they use each other's memory."""

import os

import plait
from plait import distributed as dist


def check(rank: int, device: plait.device, dtype: plait.dtype, n: int) -> None:
    """Compares collectives with what both ranks' tensors give on the CPU."""
    mine, other = (plait.randint(-50, 50, (n,), generator=plait.Generator().manual_seed(k)).to(dtype) for k in range(2))
    if rank == 1:
        mine, other = other, mine
    x = mine.to(device)
    dist.all_reduce(x)
    plait.cuda.synchronize(device)
    assert plait.equal(x.cpu(), mine + other), (dtype, n)
    full = plait.empty(2 * n, dtype=dtype, device=device)
    dist.all_gather_into_tensor(full, mine.to(device))
    assert plait.equal(full[rank * n : (rank + 1) * n].cpu(), mine), (dtype, n)
    assert plait.equal(full[(1 - rank) * n : (2 - rank) * n].cpu(), other), (dtype, n)
    part = plait.empty(n, dtype=dtype, device=device)
    dist.reduce_scatter_tensor(part, full)
    first = mine if rank == 0 else other
    assert plait.equal(part.cpu(), 2 * (first if rank == 0 else full[n:].cpu())), (dtype, n)
    works = [dist.isend(mine.to(device), 1 - rank), dist.irecv(part, 1 - rank)]
    for work in works:
        work.wait()
    assert plait.equal(part.cpu(), other), (dtype, n)


def main() -> None:
    """Checks collectives, then that a rank survives the death of the other."""
    dist.init_process_group()
    rank = dist.get_rank()
    device = plait.device("cuda", rank % plait.cuda.device_count())
    for _ in range(10):  # by then processes have found out whether they reach each other
        dist.all_reduce(plait.ones(3, device=device))
        dist.barrier()
    for dtype in (plait.float32, plait.bfloat16, plait.int64):
        for n in (1, 7, 1002, 70_000):
            check(rank, device, dtype, n)
    print("right", flush=True)
    x = plait.ones(70_000, device=device)
    try:
        for i in range(2000):
            if rank == 1 and i == 20:
                os._exit(0)
            dist.all_reduce(x)
            plait.cuda.synchronize(device)
    except plait.DistributedError as e:
        assert "is gone" in str(e)
        assert plait.ones(3, device=device).sum().item() == 3
        print("survives", flush=True)


main()
