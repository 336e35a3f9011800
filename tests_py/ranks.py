"""Ranks that are threads, for tests of what they do together."""

import plait
from plait import distributed as dist


def on_ranks(n, fn, *args, **kwargs):
    """Runs fn(rank, *args) in a process group on n ranks, and returns what each returned."""
    results = [None] * n

    def run(rank):
        dist.init_process_group("gloo")
        results[rank] = fn(rank, *args)
        dist.destroy_process_group()

    dist.spawn(run, nprocs=n, timeout=60, **kwargs)
    return results


def on_one_device(n, fn, *args):
    """Is `on_ranks` for ranks that share a device, on which tests make what they compare with."""
    return on_ranks(n, fn, *args, devices=["cpu:0"])


def close(x, y):
    """Checks that float64 tensors are equal, but for the order of sums."""
    assert x.shape == y.shape
    assert plait.allclose(x, y, rtol=1e-9, atol=1e-9), (x - y).abs().max()
