"""Training scripts on ranks, each compared with the same script on one device."""

import contextlib
import functools

import plait as torch
import plait.distributed as dist
import plait.nn.functional as F
import pytest
from plait import nn
from plait.distributed.fsdp import FSDP, ShardedGradScaler, fully_shard
from plait.nn.parallel import DistributedDataParallel
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks

WORLD = 3
go = functools.partial(on_ranks, WORLD, devices=["cpu"])
WAYS = ["ddp", "fsdp", "fully_shard"]


def net(norm=False):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.Tanh(), nn.Linear(8, 4)).double()


def data(rows=24):
    g = torch.Generator().manual_seed(1)
    return torch.randn(rows, 6, generator=g).double(), torch.randn(rows, 4, generator=g).double()


def wrapped(way, m):
    if way == "ddp":
        return DistributedDataParallel(m)
    if way == "fsdp":
        return FSDP(m, use_orig_params=True)
    fully_shard(m)
    return m


def whole(m):
    """Returns the parameters, as numbers, of a module whichever way it is wrapped."""
    with FSDP.summon_full_params(m) if isinstance(m, FSDP) else contextlib.nullcontext():
        return [p.full_tensor().tolist() if hasattr(p, "full_tensor") else p.tolist() for p in m.parameters()]


def close(got, want, tolerance=1e-9):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=tolerance, atol=tolerance)


def steps(m, x, y, n=2, **options):
    """Trains for n steps."""
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(n):
        F.mse_loss(m(x), y, **options).backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole(m)


def share(rank, *tensors):
    return [t[rank::WORLD] for t in tensors]


@pytest.mark.parametrize("way", WAYS)
def test_a_pass_that_raised_leaves_the_next_one_sound(way):
    x, y = data()

    def run(rank):
        m = wrapped(way, net())
        with pytest.raises(RuntimeError, match="linear"):
            m(torch.ones(2, 99).double())
        loss = F.mse_loss(m(x), y)
        loss.register_hook(lambda grad: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        m.zero_grad()
        return steps(m, *share(rank, x, y))

    for got in go(run):
        close(got, steps(net(), x, y))


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_without_rows(way):
    x, y = data()

    def run(rank):
        rows = slice(0, 0) if rank == 1 else slice(rank // 2, None, 2)
        m = wrapped(way, net())
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(2):
            (F.mse_loss(m(x[rows]), y[rows], reduction="sum") * (WORLD / 24)).backward()
            optimizer.step()
            optimizer.zero_grad()
        return whole(m)

    want = net()
    optimizer = torch.optim.SGD(want.parameters(), lr=0.1)
    for _ in range(2):
        (F.mse_loss(want(x), y, reduction="sum") / 24).backward()
        optimizer.step()
        optimizer.zero_grad()
    for got in go(run):
        close(got, whole(want))


def test_statistics_of_a_rank_without_rows():
    x, y = data()

    def run(rank):
        rows = slice(0, 0) if rank == 1 else slice(rank // 2, None, 2)
        m = nn.SyncBatchNorm.convert_sync_batchnorm(net(norm=True))
        wrapper = DistributedDataParallel(m)
        (F.mse_loss(wrapper(x[rows]), y[rows], reduction="sum") * WORLD).backward()
        return [p.grad.tolist() for p in m.parameters()] + [m[1].running_var.tolist()]

    m = net(norm=True)
    F.mse_loss(m(x), y, reduction="sum").backward()
    for got in go(run):
        close(got, [p.grad.tolist() for p in m.parameters()] + [m[1].running_var.tolist()])


def test_a_parameter_frozen_after_wrapping():
    x, y = data()

    def train(m, x, y):
        steps(m, x, y)
        getattr(m, "module", m)[0].weight.requires_grad_(False)
        return steps(m, x, y)

    for got in go(lambda rank: train(DistributedDataParallel(net()), *share(rank, x, y))):
        close(got, train(net(), x, y))


@pytest.mark.parametrize("way", WAYS)
def test_frozen_and_tied_weights(way):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.table, self.middle, self.head = nn.Embedding(7, 6), nn.Linear(6, 6), nn.Linear(6, 7, bias=False)
            self.head.weight = self.table.weight
            self.middle.requires_grad_(False)

        def forward(self, indices):
            return self.head(torch.tanh(self.middle(self.table(indices))))

    indices, labels = torch.arange(12) * 5 % 7, torch.arange(12) * 3 % 7

    def train(m, indices, labels):
        optimizer = torch.optim.Adam([p for p in m.parameters() if p.requires_grad], lr=0.05)
        for _ in range(3):
            F.cross_entropy(m(indices), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        return whole(m)

    def run(rank):
        inner = Tied().double()
        got = train(wrapped(way, inner), *share(rank, indices, labels))
        assert inner.head.weight is inner.table.weight
        return got

    want = train(Tied().double(), indices, labels)
    for got in go(run):
        close(got, want)


@pytest.mark.parametrize("way", ["ddp", "fully_shard"])
def test_two_forwards_of_checkpointed_layers_before_backward(way):
    x, y = data()

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return checkpoint(self.net, x, use_reentrant=False)

    def train(m, x, y):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        (F.mse_loss(m(x), y) + F.l1_loss(m(x * 2), y)).backward()
        optimizer.step()
        return whole(m)

    for got in go(lambda rank: train(wrapped(way, Wrapped()), *share(rank, x, y))):
        close(got, train(Wrapped(), x, y))


def test_a_line_search_over_ranks():
    x, y = data()

    def train(m, x, y, total=lambda loss: loss):
        optimizer = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            return total(loss.detach().clone())

        for _ in range(2):
            optimizer.step(closure)
        return whole(m)

    def mean(loss):
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        return loss

    for got in go(lambda rank: train(DistributedDataParallel(net()), *share(rank, x, y), mean)):
        close(got, train(net(), x, y), 1e-6)


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_an_overflow_of_one_rank_skips_the_step_of_all(way):
    x, y = data()

    def train(m, scaler, x, y, bad):
        optimizer, scales = torch.optim.SGD(m.parameters(), lr=0.1), []
        for i in range(4):
            loss = F.mse_loss(m(x), y) * (float("inf") if bad and i == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
        return [scales, *whole(m)]

    def run(rank):
        scaler = ShardedGradScaler if way == "fsdp" else torch.amp.GradScaler
        m = wrapped(way, net())
        return train(m, scaler("cpu", init_scale=2.0**10, growth_interval=2), *share(rank, x, y), rank == 1)

    want = train(net(), torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2), x, y, True)
    for got in go(run):
        close(got, want)


def test_gradients_of_gradients_are_averaged():
    x, y = data()

    def penalised(m, x, y):
        x = x.clone().requires_grad_()
        loss = F.mse_loss(m(x), y)
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + grad.square().sum()).backward()
        return torch.cat([p.grad.flatten() for p in m.parameters()])

    want = sum(penalised(net(), *share(rank, x, y)) for rank in range(WORLD)) / WORLD
    for got in go(lambda rank: penalised(DistributedDataParallel(net()), *share(rank, x, y)).tolist()):
        close([got], [want.tolist()])


def test_no_sync_in_no_sync_and_an_error_there():
    x, y = data()

    def run(rank):
        m = DistributedDataParallel(net())
        xs, ys = share(rank, x, y)
        with pytest.raises(KeyError), m.no_sync():
            raise KeyError("mine")
        with m.no_sync():
            with m.no_sync():
                F.mse_loss(m(xs), ys).backward()
            F.mse_loss(m(xs), ys).backward()
        F.mse_loss(m(xs), ys).backward()
        return [(p.grad / 3).tolist() for p in m.parameters()]

    m = net()
    F.mse_loss(m(x), y).backward()
    for got in go(run):
        close(got, [p.grad.tolist() for p in m.parameters()])
