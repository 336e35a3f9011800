"""`ZeroRedundancyOptimizer` updates as the optimiser by itself does, and each rank keeps a share of the states."""

import io

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.optim import ZeroRedundancyOptimizer
from ranks import on_ranks

OPTIMIZERS = [
    (plait.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (plait.optim.AdamW, {"lr": 0.01}),
    (plait.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
]


def model():
    plait.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3), nn.Linear(3, 1, bias=False)).double()


def backward(m, step):
    x = plait.arange(24.0, dtype=plait.float64).reshape(4, 6) / (10 + step)
    loss = m(x).square().mean()
    loss.backward()
    return loss


def on_cpu(state):
    """Returns a state with the tensors on the CPU of the main thread."""
    file = io.BytesIO()
    plait.save(state, file)
    file.seek(0)
    return plait.load(file, map_location="cpu:0")


def train(m, optimizer, steps, schedule=None):
    for step in range(steps):
        optimizer.zero_grad()
        backward(m, step)
        optimizer.step()
        if schedule:
            schedule.step()
    return [p.tolist() for p in m.parameters()]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("kind", "arguments"), OPTIMIZERS)
def test_steps_are_those_of_the_optimizer(size, kind, arguments):
    alone = model()
    optimizer = kind(alone.parameters(), **arguments)
    schedule = plait.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    wanted = train(alone, optimizer, 5, schedule)
    elements = sum(v.numel() for s in optimizer.state.values() for v in s.values() if isinstance(v, plait.Tensor))

    def work(rank):
        m = model()
        zero = ZeroRedundancyOptimizer(m.parameters(), kind, **arguments)
        found = train(m, zero, 5, plait.optim.lr_scheduler.StepLR(zero, 2, 0.5))
        kept = sum(v.numel() for s in zero.state.values() for v in s.values() if isinstance(v, plait.Tensor))
        with pytest.raises(RuntimeError, match=rf"rank {rank} has not collected .*to={rank}"):
            zero.state_dict()
        zero.consolidate_state_dict(to=size - 1)
        return found, kept, on_cpu(zero.state_dict()) if rank == size - 1 else None

    results = on_ranks(size, work)
    for found, _, _ in results:
        assert found == wanted
    assert sum(kept for _, kept, _ in results) == elements
    assert max(kept for _, kept, _ in results) <= elements * 0.75
    state = results[-1][2]
    whole = optimizer.state_dict()
    assert state["param_groups"] == whole["param_groups"]
    assert state["state"].keys() == whole["state"].keys()
    for number, kept in whole["state"].items():
        assert state["state"][number].keys() == kept.keys()
        for name, value in kept.items():
            assert plait.equal(plait.as_tensor(state["state"][number][name]), plait.as_tensor(value)), (number, name)


def test_states_go_to_another_number_of_ranks():
    alone = model()
    optimizer = plait.optim.Adam(alone.parameters(), lr=0.01)
    train(alone, optimizer, 3)
    saved, weights = on_cpu(optimizer.state_dict()), {k: v.clone() for k, v in alone.state_dict().items()}
    wanted = train(alone, optimizer, 2)

    def go_on(rank):
        m = model()
        m.load_state_dict(weights)
        zero = ZeroRedundancyOptimizer(m.parameters(), plait.optim.Adam, lr=1.0)
        zero.load_state_dict(saved)
        found = train(m, zero, 2)
        zero.consolidate_state_dict(to=0)
        return found, on_cpu(zero.state_dict()) if rank == 0 else None

    three = on_ranks(3, go_on)
    assert all(found == wanted for found, _ in three)
    state = three[0][1]["state"]
    assert all(plait.equal(state[n]["exp_avg"], kept["exp_avg"]) for n, kept in optimizer.state_dict()["state"].items())


def test_groups_and_names():
    def work(rank):
        m = model()
        named = list(m.named_parameters())
        groups = [{"params": named[:2], "lr": 0.5}, {"params": named[2:4]}]
        zero = ZeroRedundancyOptimizer(groups, plait.optim.SGD, lr=0.1)
        zero.add_param_group({"params": named[4:], "lr": 0.2})
        assert [g["lr"] for g in zero.param_groups] == [g["lr"] for g in zero.optim.param_groups] == [0.5, 0.1, 0.2]
        assert [n for g in zero.param_groups for n in g["param_names"]] == [n for n, _ in named]
        own = [p for g in zero.optim.param_groups for p in g["params"]]
        assert [n for g in zero.optim.param_groups for n in g["param_names"]] == [
            next(n for n, q in named if q is p) for p in own
        ]
        zero.param_groups[1]["lr"] = 0.3
        out = train(m, zero, 1)
        assert zero.optim.param_groups[1]["lr"] == 0.3
        return out, sum(p.numel() for p in own)

    results = on_ranks(3, work)
    alone = model()
    named = list(alone.parameters())
    groups = [{"params": p, "lr": r} for p, r in ((named[:2], 0.5), (named[2:4], 0.3), (named[4:], 0.2))]
    wanted = train(alone, plait.optim.SGD(groups), 1)
    assert all(found == wanted for found, _ in results)
    assert [n for _, n in results] == [48, 14, 24]  # of a group the largest first, to whom has least: 48 8, 24 3, 3


def test_fewer_parameters_than_ranks_and_dtypes():
    def work(rank):
        params = [nn.Parameter(plait.ones(2)), nn.Parameter(plait.ones(3, dtype=plait.float64))]
        zero = ZeroRedundancyOptimizer(params, plait.optim.SGD, lr=0.5)
        sum(p.double().sum() for p in params).backward()
        zero.step()
        return [p.tolist() for p in params]

    assert on_ranks(3, work) == [[[0.5] * 2, [0.5] * 3]] * 3


def test_closures_scalers_and_averaged_gradients():
    def work(rank):
        m = nn.parallel.DistributedDataParallel(model())
        zero = ZeroRedundancyOptimizer(m.parameters(), plait.optim.SGD, lr=0.1)
        assert float(zero.step(lambda: backward(m, 0))) > 0
        scaler = plait.amp.GradScaler("cpu", init_scale=8.0)
        zero.zero_grad()
        x = plait.ones(2, 6, dtype=plait.float64) * (rank + 1)
        scaler.scale(m(x).mean()).backward()
        scaler.step(zero)
        scaler.update()
        return [p.tolist() for p in m.parameters()]

    first, second = on_ranks(2, work)
    assert first == second
    alone = model()
    optimizer = plait.optim.SGD(alone.parameters(), lr=0.1)
    train(alone, optimizer, 1)
    optimizer.zero_grad()
    x = plait.ones(2, 6, dtype=plait.float64)
    ((alone(x).mean() + alone(2 * x).mean()) / 2).backward()
    optimizer.step()
    for found, wanted in zip(first, alone.parameters(), strict=True):
        plait.testing.assert_close(plait.tensor(found, dtype=plait.float64), wanted.detach())


def test_what_is_not_there_is_said():
    def work(rank):
        m = model()
        with pytest.raises(NotImplementedError, match="overlap_with_ddp is not there; call step"):
            ZeroRedundancyOptimizer(m.parameters(), plait.optim.SGD, overlap_with_ddp=True, lr=0.1)
        with pytest.raises(ValueError, match="empty parameter list"):
            ZeroRedundancyOptimizer([], plait.optim.SGD, lr=0.1)
        mesh = dist.init_device_mesh("cpu", (2,))
        spread = nn.Parameter(dist.tensor.distribute_tensor(plait.ones(4), mesh, [dist.tensor.Shard(0)]))
        with pytest.raises(TypeError, match="got distributed parameters"):
            ZeroRedundancyOptimizer([spread], plait.optim.SGD, lr=0.1)

    on_ranks(2, work)
    with pytest.raises(ValueError, match="call init_process_group first"):
        ZeroRedundancyOptimizer(model().parameters(), plait.optim.SGD, lr=0.1)
