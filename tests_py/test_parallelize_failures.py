"""A rank of a divided model that fails and goes on: the others fail, too, and no exchange meets one of another pass."""

import copy
import json
import math
from pathlib import Path

import plait
import pytest
from laid import on_ranks
from launched import kinds, run, script
from plait import distributed as dist
from plait import nn
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from plait.nn import functional as F


class Sometimes(nn.Module):
    """Raises on one rank while it is told to."""

    def __init__(self):
        super().__init__()
        self.at = -1

    def forward(self, x):
        if self.at >= 0 and dist.get_rank() == self.at:
            raise ValueError("too much")
        return x


class Model(nn.Module):
    """Three pairs of layers, with something that may fail between them."""

    def __init__(self):
        super().__init__()
        self.pairs = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(3))
        self.sometimes = Sometimes()

    def forward(self, x):
        x = self.sometimes(self.pairs[0](x))
        return self.pairs[2](self.pairs[1](x).tanh())


def staged():
    pairs = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(3)]
    return nn.Sequential(pairs[0], Sometimes(), pairs[1], nn.Tanh(), pairs[2])


PLAN = {"pairs.*.0": ColwiseParallel(), "pairs.*.2": RowwiseParallel()}
STAGED = {"0.0": ColwiseParallel(), "0.2": RowwiseParallel(), "2.0": ColwiseParallel(), "2.2": RowwiseParallel()}


def data(step):
    g = plait.Generator().manual_seed(step)
    return plait.randn(8, 8, generator=g).double(), plait.randn(8, 8, generator=g).double()


def started(make):
    plait.manual_seed(0)
    return make().double()


def trained(m, opt, steps, step):
    """Returns the losses of some steps."""
    losses = []
    for i in steps:
        opt.zero_grad()
        losses.append(step(m, *data(i)))
        opt.step()
    return losses


def on_one(make, steps):
    alone = started(make)
    opt = plait.optim.AdamW(alone.parameters(), lr=0.05)

    def step(m, x, y):
        loss = F.mse_loss(m(x), y)
        loss.backward()
        return loss.item()

    return trained(alone, opt, steps, step)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "names",
    [
        {"tp": 2},
        {"pp": 2, "tp": 2},
        {"dp": 2, "tp": 2},
        {"fsdp": 2, "tp": 2},
        {"pp": 2, "dp": 2},
        {"pp": 2, "fsdp": 2},
    ],
)
def test_a_rank_that_raises_fails_the_step_of_all(names, at):
    make, plan = (staged, STAGED) if "pp" in names else (Model, PLAN)
    want = on_one(make, range(4))

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", tuple(names.values()), mesh_dim_names=tuple(names))
        m = plait.parallelize(started(make), mesh, tp={"plan": plan} if "tp" in names else None, loss_fn=F.mse_loss)
        opt = plait.optim.AdamW(m.parameters(), lr=0.05)
        rows = 8 // m.data_parallel_size
        mine = slice(rows * m.data_parallel_rank, rows * (m.data_parallel_rank + 1))
        failing = [sub for sub in m.modules() if isinstance(sub, Sometimes)]

        def step(m, x, y):
            return m.step(x[mine], target=y[mine]).item()

        losses = []
        for i in range(4):
            if i in (1, 2):
                for sub in failing:
                    sub.at = at
                with pytest.raises((ValueError, plait.DistributedError), match=r"too much"):
                    step(m, *data(i))
                assert all(p.grad is None for p in m.parameters())
                for sub in failing:
                    sub.at = -1
            losses += trained(m, opt, [i], step)
        return losses

    for i, losses in enumerate(zip(*on_ranks(math.prod(names.values()), fn), strict=True)):
        assert sum(losses) / len(losses) == pytest.approx(want[i], rel=1e-9)


def test_a_loss_that_fails_on_one_rank():
    want = on_one(Model, range(3))

    def fn(rank):
        m = plait.parallelize(
            started(Model), dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), tp={"plan": PLAN}, loss_fn=loss
        )
        opt = plait.optim.AdamW(m.parameters(), lr=0.05)
        got = []
        for i in range(3):
            x, y = data(i)
            if i == 1:
                with pytest.raises((ValueError, plait.DistributedError), match="no loss"):
                    m.step(x, target=y + 1)
            opt.zero_grad()
            got.append(m.step(x, target=y).item())
            opt.step()
        return got

    def loss(out, y):
        if y.mean() > 0.5 and dist.get_rank() == 1:
            raise ValueError("no loss")
        return F.mse_loss(out, y)

    for losses in on_ranks(2, fn):
        assert losses == pytest.approx(want, rel=1e-9)


class Fails(plait.autograd.Function):
    """The identity, whose derivative fails."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no derivative")


def test_a_backward_pass_that_fails_on_one_rank():
    want = on_one(Model, range(3))

    def fn(rank):
        m = plait.parallelize(
            started(Model), dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), tp={"plan": PLAN}
        )
        opt = plait.optim.AdamW(m.parameters(), lr=0.05)
        got = []
        for i in range(3):
            x, y = data(i)
            if i == 1:
                with pytest.raises((ValueError, plait.DistributedError), match="no derivative"):
                    out = m(x)
                    F.mse_loss(Fails.apply(out) if rank == 1 else out, y).backward()
            opt.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            got.append(loss.item())
            opt.step()
        return got

    for losses in on_ranks(2, fn):
        assert losses == pytest.approx(want, rel=1e-9)


def test_a_wrong_call_after_a_pass_concerns_no_other_rank():
    def fn(rank):
        m = plait.parallelize(
            started(Model), dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), tp={"plan": PLAN}
        )
        x, y = data(0)
        loss = F.mse_loss(m(x), y)
        loss.backward()
        if rank == 1:
            with pytest.raises(RuntimeError, match="freed"):
                loss.backward()
        return [m(x).sum().item() for _ in range(2)]

    a, b = on_ranks(2, fn)
    assert a == b


def test_a_rank_that_skips_a_backward_pass_is_told_from_the_next():
    def fn(rank):
        m = plait.parallelize(
            started(Model), dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), tp={"plan": PLAN}
        )
        x, y = data(0)
        out = m(x)
        if rank == 0:
            F.mse_loss(out, y).backward()
        return m(x).sum().item()

    with pytest.raises(
        plait.DistributedError,
        match=r"rank 0 in pass of a model .* for the end of a pass .* rank 1 in .* for the beginning of a pass",
    ):
        on_ranks(2, fn)


def test_what_a_pass_has_exchanged_is_not_used_in_the_next():
    """An input that is gathered within a pass is gathered again after one that failed on one rank before it."""
    want = started(Model)(data(0)[0])

    def fn(rank):
        m = plait.parallelize(
            copy.deepcopy(started(Model)),
            dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)),
            tp={"plan": PLAN},
        )
        x = data(0)[0]
        hook = m.pairs[0].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(ValueError("early")))
        if rank == 0:
            hook.remove()
        with pytest.raises((ValueError, plait.DistributedError), match="early"):
            m(x).sum().item()
        hook.remove()
        assert plait.allclose(m(x), want)

    on_ranks(2, fn)


@pytest.mark.parametrize("data_axis", [None, "dp", "fsdp"])
def test_a_batch_that_one_rank_of_a_pipeline_refuses(data_axis):
    want = on_one(staged, range(2))

    def fn(_rank):
        shape, names = ((2,), ("pp",)) if data_axis is None else ((2, 2), ("pp", data_axis))
        mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=names)
        m = plait.parallelize(started(staged), mesh, loss_fn=F.mse_loss)
        # The pipeline of the first ranks of data refuses nothing, but shares parameters with one that does.
        rank = mesh.get_local_rank("pp") if data_axis is None or mesh.get_local_rank(data_axis) else -1
        opt = plait.optim.AdamW(m.parameters(), lr=0.05)
        x, y = data(0)
        wrong = {
            "wants the batch, got none": lambda: m.step(*(() if rank == 0 else (x,)), target=y),
            "wants the target, got None": lambda: m.step(x, target=None if rank == 1 else y),
            "got 8 samples and targets of 5": lambda: m.step(x, target=y[:5] if rank == 1 else y),
            "without samples": lambda: m(x[: 8 * rank]),
        }
        for words, call in wrong.items():
            with pytest.raises((ValueError, plait.DistributedError), match=words):
                call()
        return trained(m, opt, range(2), lambda m, x, y: m.step(x, target=y).item())

    for losses in on_ranks(2 if data_axis is None else 4, fn):
        assert losses == pytest.approx(want, rel=1e-9)


PROCESSES = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_parallelize_failures as t
mesh = dist.init_device_mesh("cpu", (n,), mesh_dim_names=("tp",))
m = torch.parallelize(t.started(t.Model), mesh, tp={{"plan": t.PLAN}}, loss_fn=t.F.mse_loss)
opt, losses = torch.optim.AdamW(m.parameters(), lr=0.05), []
for i in range(4):
    m.sometimes.at = (-1, 0, 1, -1)[i]
    if m.sometimes.at >= 0:
        try:
            m.step(t.data(i)[0], target=t.data(i)[1])
        except (ValueError, torch.DistributedError) as error:
            assert "too much" in str(error), error
        else:
            raise AssertionError("no error")
        m.sometimes.at = -1
    losses += t.trained(m, opt, [i], lambda m, x, y: m.step(x, target=y).item())
print(losses) if rank == 0 else None
dist.destroy_process_group()
"""


@kinds
def test_passes_of_processes(kind, tmp_path):
    code, out, err = run(kind, 2, [script(tmp_path, PROCESSES)])
    assert code == 0, err
    assert json.loads(out.strip().splitlines()[-1]) == pytest.approx(on_one(Model, range(4)), rel=1e-9)
