"""What ranks save and load in the tests of checkpoints."""

import functools

import plait
import plait.distributed as dist
from plait import nn
from plait.distributed.tensor import DTensor, Replicate, Shard
from ranks import on_ranks as on_ranks_with

on_ranks = functools.partial(on_ranks_with, devices=["cpu:0"])


def model(seed=0):
    plait.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def rows(whole, rank, n):
    if not dist.is_initialized():
        return whole.clone()
    mesh = dist.init_device_mesh("cpu", (n,))
    return DTensor.from_local(whole, mesh, [Replicate()]).redistribute(placements=[Shard(0)]).clone()


WHOLE = {"w": (7, 3), "few": (2,), "even": (8, 2)}


def whole(name):
    return plait.arange(float(plait.zeros(WHOLE[name]).numel())).reshape(WHOLE[name])
