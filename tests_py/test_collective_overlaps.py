"""Collectives whose inputs and outputs share memory do what they would do with copies, or raise."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from ranks import on_ranks


def test_inputs_in_the_place_of_outputs():
    def fn(rank):
        out = {}

        def new(n=1):
            return plait.arange(float(n)) + 10.0 * rank

        x = new()
        dist.reduce_scatter(x, [x, x, x])
        out["reduce_scatter"] = x.tolist()

        x, a, b = new(), plait.zeros(1), plait.zeros(1)
        dist.all_gather([x, a, b], x)
        out["all_gather"] = [x.item(), a.item(), b.item()]

        whole = new(6)
        dist.all_gather_into_tensor(whole, whole[2 * rank : 2 * rank + 2])  # its own part, as is usual
        out["own part"] = whole.tolist()
        whole = new(6)
        dist.all_gather_into_tensor(whole, whole[1:3])
        out["another part"] = whole.tolist()

        whole = new(6)
        dist.reduce_scatter_tensor(whole[2 * rank : 2 * rank + 2], whole)
        out["reduced own part"] = whole.tolist()
        whole = new(6)
        dist.reduce_scatter_tensor(whole[1:3], whole)
        out["reduced part"] = whole.tolist()

        x = new(3)
        dist.all_to_all_single(x, x)
        out["all_to_all_single"] = x.tolist()
        x = new(4)
        dist.all_to_all(list(x[:3].split(1)), list(x[1:].split(1)))
        out["all_to_all"] = x.tolist()

        parts = list(new(3).split(1))
        dist.scatter(parts[1], parts if rank == 0 else None, src=0)
        out["scatter"] = [p.item() for p in parts]
        x, y = new(), new()
        dist.gather(x, [y, x, plait.zeros(1)] if rank == 0 else None, dst=0)
        out["gather"] = [y.item(), x.item()]

        x = new(4).reshape(2, 2).t()
        dist.all_reduce(x)
        out["transposed"] = x.tolist()
        return out

    ranks = on_ranks(3, fn)
    for r, out in enumerate(ranks):
        own, base = slice(2 * r, 2 * r + 2), [10.0 * r + i for i in range(6)]
        assert out["reduce_scatter"] == [30]
        assert out["all_gather"] == [0, 10, 20]
        assert out["own part"] == [0, 1, 12, 13, 24, 25]
        assert out["another part"] == [1, 2, 11, 12, 21, 22]
        sums = [30.0 + 3 * i for i in range(6)]
        assert out["reduced own part"] == [sums[i] if i in range(6)[own] else base[i] for i in range(6)]
        assert out["reduced part"] == [base[0], *sums[own], *base[3:]]
        assert out["all_to_all_single"] == [r, 10 + r, 20 + r]
        assert out["all_to_all"] == [r + 1, 11 + r, 21 + r, base[3]]
        assert out["scatter"] == [base[0], float(r), base[2]]
        assert out["gather"] == ([0, 10] if r == 0 else base[:1] * 2)
        assert out["transposed"] == [[30, 36], [33, 39]]


def test_outputs_that_share_memory_are_refused():
    def fn(rank):
        with pytest.raises(
            ValueError, match=r"all_gather: outputs 0 and 1, float32\[2\] and float32\[2\], share memory"
        ):
            dist.all_gather([plait.zeros(2)] * 2, plait.ones(2))
        x = plait.zeros(3)
        with pytest.raises(ValueError, match="outputs 0 and 1"):
            dist.all_to_all([x[:2], x[1:]], [plait.ones(2), plait.ones(2)])
        with pytest.raises(ValueError, match=r"elements of output 0, .* share memory; clone it first"):
            dist.all_reduce(plait.zeros(1).expand(3))
        return x.tolist()

    assert on_ranks(2, fn) == [[0, 0, 0]] * 2


def test_ranks_that_share_an_array():
    array = np.arange(4.0)

    def fn(rank):
        x = plait.from_numpy(array)
        dist.all_reduce(x)  # one place for all: it is read before it is written
        with pytest.raises(plait.DistributedError, match=r"of rank 0, float64\[3\], and .* of rank 1, .* share memory"):
            dist.all_reduce(x[rank : rank + 3])
        with pytest.raises(plait.DistributedError, match="share memory"):
            dist.broadcast(x[rank : rank + 3], src=0)

    on_ranks(2, fn)
    assert array.tolist() == [0, 2, 4, 6]
