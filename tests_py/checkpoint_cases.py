"""What ranks save and load in the tests of checkpoints."""

import functools

import plait
from plait import nn
from plait.distributed._placement import Placement, set_placement
from ranks import on_ranks as on_ranks_with

on_ranks = functools.partial(on_ranks_with, devices=["cpu:0"])


def model(seed=0):
    plait.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def rows(whole, rank, n):
    size = -(-whole.shape[0] // n)
    start = min(rank * size, whole.shape[0])
    part = whole[start : min(start + size, whole.shape[0])].clone()
    return set_placement(part, Placement(tuple(whole.shape), (start, *[0] * (whole.dim() - 1))))


WHOLE = {"w": (7, 3), "few": (2,), "even": (8, 2)}


def whole(name):
    return plait.arange(float(plait.zeros(WHOLE[name]).numel())).reshape(WHOLE[name])
