"""What a failed result should have changed is failed as well, and says so to whoever reads it."""

import contextlib

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.nn.parallel import DistributedDataParallel
from ranks import on_ranks


def bad(shape):
    """Returns a tensor that fails when it is computed."""
    return plait.ones(3).take(plait.full(shape, 7))


@pytest.mark.parametrize("size", [4, 1 << 17], ids=["here", "queued"])
@pytest.mark.parametrize(
    "change",
    [
        lambda y, x: y.add_(x),
        lambda y, x: y[1:].mul_(x[1:]),
        lambda y, x: y.clamp_(max=x),
        lambda y, x: y[:2].copy_(x[:2]),
    ],
    ids=["add_", "a part", "clamp_", "copy_"],
)
def test_a_change_that_is_left_out(size, change):
    y, x, other = plait.ones(size), bad([size]), plait.ones(2)
    with pytest.raises(IndexError):
        x.tolist()  # the error is known
    change(y, x)
    assert other.tolist() == [1, 1]  # the cause was read: the stream does not say it again
    for _ in range(2):
        with pytest.raises(IndexError, match="index 7"):
            y.tolist()
    with pytest.raises(IndexError, match="index 7"):
        (y + 1).sum().item()
    y.fill_(2)
    assert y.sum().item() == 2 * size
    assert other.tolist() == [1, 1]


def test_a_step_that_is_refused_leaves_parameters_as_they_were(tmp_path):
    m = nn.Linear(2, 2)
    before = m.weight.tolist()
    optimizer = plait.optim.Adam(m.parameters())
    m(plait.ones(1, 2)).sum().backward()
    m.weight.grad = bad([2, 2])
    with pytest.raises(IndexError):
        m.weight.grad.tolist()
    with pytest.raises(IndexError, match="index 7"):
        optimizer.step()
    assert m.weight.tolist() == before


def test_a_failed_tensor_is_not_saved(tmp_path):
    y = plait.ones(4).add_(bad([4]))
    for _ in range(2):
        with pytest.raises(IndexError, match="index 7"):
            plait.save({"y": y}, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


def test_a_sum_that_is_refused():
    def run(rank):
        x, y = plait.ones(4), plait.ones(4)
        work = dist.all_reduce(x if rank == 0 else plait.ones(5), async_op=True)
        y.add_(x) if rank == 0 else None
        with pytest.raises(plait.DistributedError):
            work.wait()
        if rank == 0:
            with pytest.raises(plait.DistributedError, match="disagree"):
                y.tolist()
            with pytest.raises(plait.DistributedError, match="disagree"):
                y.tolist()
            assert x.tolist() == [1, 1, 1, 1]  # the call is refused, and left it alone
        y.zero_()
        return y.tolist()

    assert on_ranks(2, run) == [[0] * 4] * 2


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_a_rank_whose_peer_is_gone_saves_nothing(how, tmp_path):
    def run(rank):
        plait.manual_seed(0)
        m = nn.Linear(2, 2)
        m = DistributedDataParallel(m) if how == "ddp" else plait.fully_shard(m)
        optimizer = plait.optim.SGD(m.parameters(), lr=0.1)
        for step in range(2):
            loss = m(plait.ones(1, 2)).sum()
            if rank and step:
                return
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for _ in range(3):
            with pytest.raises(plait.DistributedError, match="rank 1 is gone"):
                for p in m.parameters():
                    (p if how == "ddp" else p.to_local()).tolist()
        with pytest.raises(plait.DistributedError, match="rank 1 is gone"):
            plait.save(
                m.state_dict() if how == "ddp" else {n: p.to_local() for n, p in m.named_parameters()},
                tmp_path / "m.pt",
            )

    with contextlib.suppress(plait.DistributedError):  # of the rank's end, if it has not been told before
        on_ranks(2, run)
